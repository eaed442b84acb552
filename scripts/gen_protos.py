"""Generate common/pb from proto/ (`--check`: only say whether common/pb is current)."""

import argparse
import filecmp
import re
import shutil
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
THIRD_PARTY = PROTO / "third_party"
OUTPUT = ROOT / "common" / "pb"
BIN = Path(sys.executable).parent
# protoc's own google/protobuf/*.proto.
WELL_KNOWN = Path(grpc_tools.__file__).parent / "_proto"

# protoc names modules from the root of proto/; ours live in common.pb.
_IMPORT = re.compile(r"^(from|import) bridle\.", re.MULTILINE)
# A method that a servicer does not override answers UNIMPLEMENTED: it is not abstract, whatever the stubs say.
_ABSTRACT = re.compile(r"^    @_abc_1\.abstractmethod\n", re.MULTILINE)
_PACKAGE_DOC = '"""Generated from proto/ by scripts/gen_protos.py; do not edit."""\n'


def sources() -> list[Path]:
    """Our own .proto files; what lies in third_party is only imported."""
    return sorted(path for path in PROTO.rglob("*.proto") if THIRD_PARTY not in path.parents)


def generate(target: Path) -> None:
    """Write the Python code of every source below `target`."""
    files = sources()
    if not files:
        raise SystemExit("gen_protos: there is no .proto file in proto/")
    target.mkdir(parents=True, exist_ok=True)
    includes = [f"--proto_path={folder}" for folder in (PROTO, THIRD_PARTY, WELL_KNOWN)]
    plugins = ("python", "grpc_python", "mypy", "mypy_grpc")
    outputs = [f"--{plugin}_out={'quiet:' if plugin.startswith('mypy') else ''}{target}" for plugin in plugins]
    # Named by path, so that the virtualenv need not be activated.
    tools = [f"--plugin=protoc-gen-{name}={BIN / f'protoc-gen-{name}'}" for name in ("mypy", "mypy_grpc")]
    if protoc.main(["protoc", *includes, *tools, *outputs, *map(str, files)]) != 0:
        raise SystemExit("gen_protos: protoc failed")
    drop_empty_services(target, files)
    for path in [*target.rglob("*.py"), *target.rglob("*.pyi")]:
        path.write_text(_ABSTRACT.sub("", _IMPORT.sub(r"\1 common.pb.bridle.", path.read_text())))
    for folder in {target, *(path.parent for path in target.rglob("*_pb2.py"))}:
        write_packages(target, folder)


def drop_empty_services(target: Path, files: list[Path]) -> None:
    """Remove the gRPC modules that protoc writes for files without a service."""
    for source in files:
        if re.search(r"^service \w+", source.read_text(), re.MULTILINE):
            continue
        stem = target / source.relative_to(PROTO).with_suffix("")
        for suffix in ("_pb2_grpc.py", "_pb2_grpc.pyi"):
            stem.with_name(stem.name + suffix).unlink(missing_ok=True)


def write_packages(target: Path, folder: Path) -> None:
    """Make `folder` and its parents up to `target` regular packages."""
    while True:
        (folder / "__init__.py").write_text(_PACKAGE_DOC)
        if folder == target:
            return
        folder = folder.parent


def differences(expected: Path, actual: Path) -> list[str]:
    """Name the files that are missing, superfluous or different in `actual`."""

    def listing(root: Path) -> set[str]:
        return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and p.suffix in {".py", ".pyi"}}

    wanted, present = listing(expected), listing(actual)
    changed = {name for name in wanted & present if not filecmp.cmp(expected / name, actual / name, shallow=False)}
    return sorted((wanted ^ present) | changed)


def check() -> int:
    """Regenerate beside the tree and compare."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        stale = differences(Path(scratch), OUTPUT)
    for name in stale:
        print(f"common/pb/{name} is not what proto/ generates")
    print("common/pb is stale: run `make proto`" if stale else "common/pb is current")
    return 1 if stale else 0


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, change nothing")
    if parser.parse_args().check:
        return check()
    # Swapped in only when complete: a broken .proto leaves the old code importable.
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch) / "pb"
        generate(fresh)
        shutil.rmtree(OUTPUT, ignore_errors=True)
        shutil.copytree(fresh, OUTPUT)
    print(f"common/pb: generated from {len(sources())} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
