// Keeps the key where only pages of this address and port can read it; the cookie came with this answer.
localStorage.setItem("locum-key", document.querySelector("meta[name=locum-key]").content);
location.replace("/");
