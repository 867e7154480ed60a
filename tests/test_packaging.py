"""What ships is what lies in the folders, and importing it costs no more than it must."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tracekit.loading import load

ROOT = Path(__file__).parents[1]
ROOMS = {"tracekit": "tracekit", "capture": "tracekit.capture", "queries": "tracekit.queries"}
"""Folders that ship, and the names of their packages."""


@pytest.fixture(scope="module")
def setuptools() -> dict[str, Any]:
    """Return what pyproject.toml tells setuptools."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = settings["tool"]["setuptools"]
    return found


def shipped(*suffixes: str) -> list[Path]:
    """Return the files with these suffixes in the folders that ship."""
    found = [path for folder in ROOMS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes]
    assert found
    return found


def package_of(path: Path) -> str:
    """Return the name of the package that a file of ours lies in."""
    folder, *rest = path.parent.relative_to(ROOT).parts
    return ".".join([ROOMS[folder], *rest])


def module_of(path: Path) -> str:
    """Return the name under which a Python file of ours is imported."""
    package = package_of(path)
    return package if path.stem == "__init__" else f"{package}.{path.stem}"


def run(code: str) -> str:
    """Run Python code in a process of its own, outside the checkout, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path(sys.executable).parent
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_by(statement: str, *names: str) -> set[str]:
    """Return which of the named packages a statement imports."""
    listing = f"print(*(name for name in {names!r} if name in sys.modules))"
    return set(run(f"import sys\n{statement}\n{listing}").splitlines()[-1].split())


def test_the_packages_are_the_folders_with_code(setuptools: dict[str, Any]) -> None:
    assert setuptools["packages"] == sorted({package_of(path) for path in shipped(".py", ".sql")})


def test_every_package_has_an_init(setuptools: dict[str, Any]) -> None:
    folders = {package_of(path): path.parent for path in shipped(".py", ".sql")}
    assert [name for name in setuptools["packages"] if not (folders[name] / "__init__.py").is_file()] == []


def test_folders_outside_tracekit_are_named(setuptools: dict[str, Any]) -> None:
    assert setuptools["package-dir"] == {name: folder for folder, name in ROOMS.items() if name != folder}


def test_every_file_that_is_no_code_ships_and_every_pattern_finds_one(setuptools: dict[str, Any]) -> None:
    data = shipped(".sql", ".toml", ".typed", ".css", ".js", ".html", ".json")
    patterns = [(package, pattern) for package, found in setuptools["package-data"].items() for pattern in found]
    matched = {
        path: [rule for rule in patterns if rule[0] == package_of(path) and path.match(rule[1])] for path in data
    }
    assert [str(path) for path, rules in matched.items() if not rules] == []
    assert sorted({rule for rules in matched.values() for rule in rules}) == sorted(patterns)


def test_the_installed_package_reads_its_own_files() -> None:
    names = {entry.name for entry in files("tracekit.queries").iterdir()}
    assert {path.name for path in (ROOT / "queries").glob("*.sql")} <= names
    assert all(files("tracekit").joinpath(name).is_file() for name in ("schema.sql", "views.sql", "roofs.sql"))


def test_no_module_but_capture_ever_imports_torch() -> None:
    modules = [module_of(path) for path in shipped(".py") if package_of(path).split(".")[:2] != ["tracekit", "capture"]]
    modules.remove("tracekit.__main__")
    assert imported_by(f"import {', '.join(modules)}", "torch", "polars", "_duckdb") == {"polars", "_duckdb"}


@pytest.mark.parametrize(
    "statement", ["import tracekit", "import tracekit.errors", "import tracekit.bundle", "import tracekit.cli"]
)
def test_what_capture_and_help_need_imports_nothing_heavy(statement: str) -> None:
    assert imported_by(statement, "polars", "_duckdb", "altair", "pyarrow", "msgspec", "rich", "torch") == set()


def test_importing_capture_imports_nothing_that_a_training_image_lacks() -> None:
    assert imported_by("import tracekit.capture", "polars", "_duckdb", "altair", "pyarrow", "msgspec", "rich") == set()


def test_help_imports_nothing_heavy() -> None:
    statement = "from tracekit.cli import main\nmain(['--help'], standalone_mode=False)"
    assert imported_by(statement, "polars", "_duckdb", "altair") == set()


def test_a_question_waits_for_nothing_that_only_loading_needs() -> None:
    sample = ROOT / "sample_traces" / "train.tkb"
    statement = f"from tracekit.cli import main\nmain(['query', {str(sample)!r}, 'roofline'], standalone_mode=False)"
    loading = ("numpy", "pyarrow", "tracekit.link", "tracekit.ingest")
    assert set(loading) - {"pyarrow"} <= imported_by(statement, *loading)
    assert imported_by(statement, *loading) == set()  # since it is in the cache


ASKED = ["attention_share", "gemm_calls", "forward_backward", "launch_gaps", "select name, dur_ns from kernel"]


@pytest.mark.parametrize("question", ASKED)
@pytest.mark.parametrize("style", ["table", "json", "md"])
def test_a_question_of_a_bundle_imports_no_second_engine(tmp_path: Path, question: str, style: str) -> None:
    path = str(tmp_path / "run.tkb")
    load(ROOT / "sample_traces" / "train.tkb", path)
    asked = ["query", path, question, "-f", style]
    statement = f"from tracekit.cli import main\nmain({asked!r}, standalone_mode=False)"
    heavy = ("duckdb", "_duckdb", "polars", "numpy", "pyarrow", "pandas", "importlib.metadata")
    assert imported_by(statement, *heavy) == {"_duckdb"}
    frames = f"import tracekit\ntracekit.open({path!r}).query('top_kernels').frame"
    assert imported_by(frames, "duckdb", "polars", "pyarrow", "pandas") == {"polars"}


def test_where_the_engine_is_no_module_of_its_own_its_package_answers(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tkb")
    load(ROOT / "sample_traces" / "train.tkb", path)
    hidden = "import duckdb\nsys.modules['_duckdb'] = None\nimport tracekit\n"
    asked = f"with tracekit.open({path!r}) as run: print(run.query('top_kernels').content.height)"
    engine = "from tracekit.store import engine\nprint(engine.duckdb.__name__)"
    assert run(f"import sys\n{hidden}{asked}\n{engine}").split() == ["20", "duckdb"]


def test_running_the_module_is_running_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "tracekit", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: ")
    assert "query" in done.stdout


ALLOWED = {*sys.stdlib_module_names, "torch", "click", "tracekit.errors", "tracekit.bundle", "tracekit.__version__"}


@pytest.mark.parametrize("path", sorted((ROOT / "capture").rglob("*.py")), ids=lambda path: path.stem)
def test_capture_imports_only_what_a_training_image_has(path: Path) -> None:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = node.module or ""
            names += [f"{module}.{alias.name}" for alias in node.names] if module == "tracekit" else [module]
    assert [name for name in names if name not in ALLOWED and name.split(".")[0] not in ALLOWED] == []


def test_the_version_is_said_once() -> None:
    import tracekit

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert tracekit.__version__ == settings["project"]["version"]
