"""A CVAE from records in pieces: as good as one from memory, with the same release and the same refusals."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from locum.data import load_sample, split
from locum.errors import CheckpointError, ConfigError, DataError, PrivacyError
from locum.generate import CVAEGenerator, VAEGenerator
from locum.train import Checkpoint
from locum.types import DP, Batches, EmbeddingSet, SetBatches

SMALL = {"hidden": (16,), "latent": 4, "max_epochs": 3, "random_state": 0}


def accuracy(generator: CVAEGenerator, test: EmbeddingSet) -> float:
    """Of a classifier that is trained on samples alone."""
    X, y = generator.sample(3000, random_state=0)
    scale = X.std(axis=0) + 1e-6
    return float(LogisticRegression(max_iter=300).fit(X / scale, y).score(test.X / scale, test.y))


def test_a_fit_from_pieces_is_as_good_as_one_from_memory() -> None:
    parts = split(load_sample("digits"), {"train": 0.7, "test": 0.3}, rng=np.random.default_rng(0))
    settings = {"preset": "replica", "max_epochs": 60, "learning_rate": 2e-3, "random_state": 0}
    whole = CVAEGenerator(**settings).fit(parts["train"].X, parts["train"].y)
    pieces = CVAEGenerator(**settings).fit_batches(SetBatches(parts["train"], rows=100))
    a, b = accuracy(whole, parts["test"]), accuracy(pieces, parts["test"])
    assert a > 0.8
    assert b == pytest.approx(a, abs=0.04)
    assert len(pieces.history_.validation_loss) == len(pieces.history_.train_loss)


@pytest.mark.parametrize("scaling", ["class", "zscore", "minmax"])
def test_a_release_holds_the_same_numbers_but_for_the_weights(blob_set: EmbeddingSet, scaling: str) -> None:
    sexes = np.array(["F", "M"])[np.arange(len(blob_set)) % 2]
    data = replace(blob_set, attributes={"sex": sexes, "site": np.arange(len(blob_set)) % 3})
    # Without early stopping nothing is held out, so both scalers see all records.
    made = {**SMALL, "patience": 0, "scaling": scaling, "decoder_noise": "low-rank", "condition_on": ("sex", "site")}
    whole = CVAEGenerator(**made).fit(data.X, data.y, attributes=data.attributes).release(data.info, no_dp=True)
    fitted = CVAEGenerator(**made).fit_batches(SetBatches(data, rows=17))
    pieces = fitted.release(data.info, no_dp=True)
    one, other = whole.manifest, pieces.manifest
    assert one.model_dump(exclude={"files"}) == other.model_dump(exclude={"files"})
    assert "device" not in other.settings
    for name in ("span", "offset"):
        np.testing.assert_allclose(pieces.tensors[name], whole.tensors[name], rtol=1e-5, atol=1e-6)
    assert {k: v.shape for k, v in whole.tensors.items()} == {k: v.shape for k, v in pieces.tensors.items()}
    X, _ = fitted.sample(20, attributes={"sex": "M"}, random_state=0)
    assert X.shape == (20, 8)


def test_the_noise_of_the_decoder_is_that_of_all_pieces(blob_set: EmbeddingSet) -> None:
    made = {**SMALL, "patience": 0, "decoder_noise": "diagonal"}
    fitted = CVAEGenerator(**made).fit_batches(SetBatches(blob_set, rows=13))
    errors = blob_set.X - fitted.reconstruct(blob_set.X, blob_set.y)
    # Reconstructions come from the mean of each latent, the noise from a draw: it is somewhat larger.
    ratio = fitted._fitted().tensors["noise_scale"] / np.sqrt(np.square(errors).mean(axis=0))
    assert (ratio > 0.9).all()
    assert (ratio < 1.6).all()


def test_seeds_repeat_a_fit_and_classes_that_do_not_occur_are_left_out(blob_set: EmbeddingSet) -> None:
    named = blob_set.with_classes(("ape", "ant", "bee", "cat"))
    batches = SetBatches(named, rows=20)
    one, other = (CVAEGenerator(**SMALL).fit_batches(batches) for _ in range(2))
    assert one.classes_.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(one.sample(9, random_state=1)[0], other.sample(9, random_state=1)[0])
    assert one.release(named.info, no_dp=True).manifest.class_names == ("ant", "bee", "cat")


def test_unlabeled_pieces(blob_set: EmbeddingSet) -> None:
    vae = VAEGenerator(**SMALL).fit_batches(SetBatches(blob_set, rows=20), validation=blob_set)
    assert vae.sample(4)[1].tolist() == ["unlabeled"] * 4
    np.testing.assert_allclose(vae._fitted().tensors["offset"][0], blob_set.X.mean(axis=0), rtol=1e-4, atol=1e-5)


def test_validation_stops_a_fit_and_must_have_the_classes_of_the_fit(blob_set: EmbeddingSet) -> None:
    made = {**SMALL, "max_epochs": 200, "patience": 2, "learning_rate": 0.05}
    for other in (blob_set, SetBatches(blob_set, rows=50)):
        fitted = CVAEGenerator(**made).fit_batches(SetBatches(blob_set, rows=30), validation=other)
        assert fitted.history_.stopped_early
    dogs = EmbeddingSet.from_arrays(blob_set.X, ["dog"] * len(blob_set))
    with pytest.raises(DataError, match="'dog' is not among"):
        CVAEGenerator(**made).fit_batches(SetBatches(blob_set), validation=dogs)
    with pytest.raises(DataError, match="8 features"):
        CVAEGenerator(**made).fit_batches(SetBatches(blob_set), validation=replace(blob_set, X=blob_set.X[:, :3]))


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"privacy": DP(1.0, 1e-5, n_public=200), "classes": [0, 1, 2]}, PrivacyError, "must be in memory .*GB"),
        ({"condition_on": ["sex"]}, ConfigError, "names 'sex', but"),
        ({"scaling": "public"}, ConfigError, "belongs to differential privacy"),
        ({"device": "tpu"}, ConfigError, "one of auto, cpu, cuda, mps; got 'tpu'"),
    ],
)
def test_what_cannot_work_is_refused_before_records_are_read(
    blob_set: EmbeddingSet, settings: dict[str, object], error: type[Exception], words: str
) -> None:
    counted = Counted(blob_set)
    with pytest.raises(error, match=words):
        CVAEGenerator(**SMALL, **settings).fit_batches(counted)
    assert not counted.read


def test_a_mean_over_one_subject_or_one_vector_is_not_released(blob_set: EmbeddingSet) -> None:
    info, n = blob_set.info, len(blob_set)
    one = replace(blob_set, subject=np.where(blob_set.y == 2, "zoe", np.arange(n).astype(str)))
    same = replace(blob_set, X=np.where(blob_set.y[:, None] == 2, 1.0, blob_set.X))
    lone = replace(blob_set, attributes={"sex": np.where(np.arange(n) == 3, "X", "F")})
    for data, words, more in (
        (one, "Class '2' has a single record or subject", {}),
        (same, "Class '2' holds the same vector", {}),
        (lone, "only one record holds", {"condition_on": ["sex"]}),
    ):
        fitted = CVAEGenerator(**SMALL, **more).fit_batches(SetBatches(data, rows=25))
        with pytest.raises(PrivacyError, match=words):
            fitted.release(info, no_dp=True)


@dataclass(frozen=True)
class Counted:
    """Records in pieces that count how often a part is read, and may fail at one."""

    data: EmbeddingSet
    fail_at: int = -1
    read: list[int] = field(default_factory=list)

    def __getattr__(self, name: str) -> object:
        return getattr(SetBatches(self.data), name)

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[EmbeddingSet]:
        self.read.append(len(self.read))
        if len(self.read) == self.fail_at:
            raise OSError("the disk is gone")
        yield self.data

    def only(self, **_: object) -> Counted:
        return self

    def parts(self) -> Sequence[Batches]:
        n = range(0, len(self.data), 30)
        return [Counted(self.data.take(range(a, min(a + 30, len(self)))), self.fail_at, self.read) for a in n]


def test_an_interrupted_fit_resumes_with_the_order_that_it_would_have_had(
    blob_set: EmbeddingSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "locum.generate.cvae.Checkpoint", lambda path, identity: Checkpoint(path, identity, every_seconds=0)
    )
    made = {**SMALL, "max_epochs": 8, "checkpoint": tmp_path / "fit.safetensors"}
    unbroken = CVAEGenerator(**made).fit_batches(Counted(blob_set))
    # Seven parts: two passes before training, then the fifth epoch.
    broken = Counted(blob_set, fail_at=7 * 6 + 3)
    with pytest.raises(OSError, match="disk"):
        CVAEGenerator(**made).fit_batches(broken)
    assert (tmp_path / "fit.safetensors").stat().st_mode & 0o777 == 0o600
    with pytest.raises(CheckpointError, match="other data or settings"):
        CVAEGenerator(**made).fit_batches(Counted(blob_set.take(range(1, len(blob_set)))))
    rest = Counted(blob_set)
    resumed = CVAEGenerator(**made).fit_batches(rest)
    assert len(rest.read) < 7 * 8
    assert resumed.history_ == unbroken.history_
    for name, value in unbroken._fitted().tensors.items():
        np.testing.assert_array_equal(value, resumed._fitted().tensors[name])


MADE_UP = '''
import resource
from dataclasses import dataclass
import numpy as np
from locum.generate import CVAEGenerator
from locum.types import EmbeddingInfo, EmbeddingSet, Facts

@dataclass(frozen=True)
class MadeUp:
    """A million vectors of 64 features that exist only while they are read."""
    first: int
    last: int
    info = EmbeddingInfo(class_names=("a", "b", "c"))
    dim, has_subjects, attribute_names = 64, False, ()
    def __len__(self): return 10_000 * (self.last - self.first)
    def __iter__(self):
        for i in range(self.first, self.last):
            rng = np.random.default_rng(i)
            y = rng.integers(0, 3, size=10_000)
            # Uniform numbers are made several times as fast as normal ones.
            X = rng.random((10_000, 64), dtype="float32") - np.float32(0.5) + y[:, None].astype("float32")
            yield EmbeddingSet(X, y, info=self.info)
    def facts(self): return (Facts(piece.y) for piece in self)
    def state(self): return str((self.first, self.last))
    def only(self, **_): return self
    def parts(self): return [MadeUp(i, i + 1) for i in range(self.first, self.last)]

def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

model = CVAEGenerator(hidden=(32,), latent=4, max_epochs=1, batch_size=2048, decoder_noise="low-rank", random_state=0)
model.fit_batches(MadeUp(0, 1))
before = peak()
model.fit_batches(MadeUp(0, 100))
means = model._fitted().tensors["offset"].mean(axis=1)
print(len(MadeUp(0, 100)), peak() - before, *means.tolist())
'''


@pytest.mark.slow
def test_memory_stays_bounded_while_a_million_records_are_learned_from() -> None:
    done = subprocess.run([sys.executable, "-c", MADE_UP], capture_output=True, text=True, check=True)
    records, megabytes, *means = map(float, done.stdout.split())
    assert records == 1_000_000
    # The vectors alone are 256 MB; in memory a fit needs them three times. The buffer is 128 MB, held-out rows 16 MB.
    assert megabytes < 210
    np.testing.assert_allclose(means, [0, 1, 2], atol=0.01)
