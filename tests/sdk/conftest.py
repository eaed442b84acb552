"""The twins are not collected here: they need an SDK that this environment does not have."""

collect_ignore = ["twins", "node"]
