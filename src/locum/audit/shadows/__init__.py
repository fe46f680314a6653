"""Shadow generators, fitted with and without each record, for LiRA and RMIA."""
