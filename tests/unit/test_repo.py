"""Rules that the repository keeps about itself."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml

from tests.support.durations import COLLECTED, read_durations

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
TOP_LEVEL = (
    "dags",
    "dmls_core",
    "docker-compose.yaml",
    "images/trainer",
    "plugins",
    "pyproject.toml",
    "tests",
    "triton_models",
)
TRAINERS = ("trainer-cpu.txt", "trainer-gpu.txt")
RAPIDS = {"cudf", "cuml", "cupy", "nvforest"}


@cache
def tracked() -> list[Path]:
    """Every file that git has, or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [file for line in done.stdout.splitlines() if (file := ROOT / line).is_file()]


def python_files(*folders: str) -> list[Path]:
    return [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def lock(name: str) -> dict[str, set[str]]:
    """Packages of a lock file with their versions: more than one where they depend on Python's."""
    found: dict[str, set[str]] = {}
    for match in re.finditer(
        r"^([a-z0-9._-]+)==([^ ;\\]+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE
    ):
        found.setdefault(match[1], set()).add(match[2])
    return found


def test_an_sbom_names_every_locked_package(tmp_path):
    script = ROOT / "requirements/write_sbom.sh"
    subprocess.run([script, BIN / "cyclonedx-py", tmp_path, "trainer-cpu"], check=True, capture_output=True)
    document = json.loads((tmp_path / "trainer-cpu.json").read_text())
    found = {(part["name"], part["version"]) for part in document["components"]}
    assert found == {(name, version) for name, all_ in lock("trainer-cpu.txt").items() for version in all_}
    assert all(part["externalReferences"][0]["hashes"] for part in document["components"])


def test_a_clone_has_what_users_look_for_at_the_top_level():
    found = {file.relative_to(ROOT).as_posix() for file in tracked()}
    missing = [name for name in TOP_LEVEL if not any(f"{file}/".startswith(f"{name}/") for file in found)]
    assert missing == []


def lines(file: Path) -> int:
    return file.read_text().count("\n")


@pytest.mark.parametrize("folder", ["dags", "plugins"])
def test_what_airflow_parses_is_thin(folder):
    assert {file.name: lines(file) for file in python_files(folder) if lines(file) > 40} == {}


def test_every_package_says_what_it_is_for():
    folders = {file.parent for file in python_files("dmls_core")}
    mute = [
        str(folder.relative_to(ROOT))
        for folder in sorted(folders)
        if not (folder / "__init__.py").is_file()
        or not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    ]
    assert mute == []


def imported_modules(file: Path, modules: set[str]) -> set[str]:
    """Modules of the package that a file imports, also within functions or for annotations only."""
    imported = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            imported |= {name if name in modules else node.module for name in names}
    return imported & modules - {module_of(file)}


def test_no_modules_import_each_other_in_a_circle():
    files = {module_of(file): file for file in python_files("dmls_core")}
    imports = {module: imported_modules(file, set(files)) for module, file in files.items()}
    circle: list[str] = []
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []


def test_a_class_name_has_one_owner():
    owners: dict[str, list[str]] = {}
    for file in python_files("dmls_core"):
        for name in re.findall(r"^class (\w+)", file.read_text(), re.MULTILINE):
            owners.setdefault(name, []).append(module_of(file))
    del owners["TritonPythonModel"]  # Triton looks for this name in each file that it loads

    assert {name: modules for name, modules in owners.items() if len(modules) > 1} == {}


def test_nothing_is_pickled():
    word = re.compile(r"\b(pickle|cloudpickle|joblib\.(dump|load))\b")
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in python_files("dmls_core", "dags", "plugins")
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if word.search(line) and re.match(r"\s*(import|from)\b|.*\.(dump|load)s?\(", line)
    ]
    assert found == []


def test_no_file_holds_this_machine_or_a_registry():
    homes = {str(Path.home()), str(ROOT.parent)} - {"/", "/root", "/home", "/tmp"}
    patterns = [re.escape(f"{home}/") for home in homes]
    patterns += [
        r"https?://[^\s\"']*/(simple|packages)/",
        r"files\.pythonhosted",
        r"--(extra-)?index-url[ =]\S",
    ]
    wrong = re.compile("|".join(patterns))
    here = Path(__file__)
    found = []
    for file in tracked():
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        if file != here and (match := wrong.search(text)):
            found.append(f"{file.relative_to(ROOT)}: {match[0]}")
    assert found == []
    assert not (ROOT / "uv.lock").exists()


# -- tests ---------------------------------------------------------------------------------------------


def nightly_tests() -> dict[str, str]:
    """Return why tests are nightly, by file, function, or ``[...]`` for some of its parameters."""
    reasons = {}
    for file in python_files("tests"):
        name = file.relative_to(ROOT / "tests").as_posix()
        for node in ast.walk(ast.parse(file.read_text())):
            marks: list[ast.expr] = []
            test = name
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                marks, test = node.decorator_list, f"{name}::{node.name}"
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                marks = [node.value]
            for outer, call in ((mark, part) for mark in marks for part in ast.walk(mark)):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.nightly":
                    reasons[test if call is outer else f"{test}[...]"] = ast.literal_eval(call.args[0])
    return reasons


def test_contributing_lists_the_nightly_tests():
    rows = [f"| `{test}` | {reason} |" for test, reason in sorted(nightly_tests().items())]
    page = (ROOT / "CONTRIBUTING.md").read_text()
    table = page.partition("| test | why only nightly |\n| --- | --- |\n")[2].partition("\n\n")[0]
    assert table.splitlines() == rows, "the table in CONTRIBUTING.md should be:\n" + "\n".join(rows)


def test_the_durations_of_nearly_all_tests_are_recorded(pytestconfig: pytest.Config):
    """Record them with `make test DURATIONS=1`, and with `make test-all DURATIONS=1` for the nightly ones."""
    collected = pytestconfig.stash.get(COLLECTED, None)
    if collected is None:
        pytest.skip("the whole suite is not collected")
    recorded = set(read_durations())
    assert sorted(recorded - collected) == []
    assert len(recorded) >= 0.95 * len(collected), sorted(collected - recorded)[:50]


# -- locks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.name)
def test_a_lock_pins_every_package_with_hashes(file):
    text = file.read_text().replace("\\\n", " ")
    rows = [row for row in text.splitlines() if row and not row.lstrip().startswith("#")]
    assert rows
    assert [
        row[:60] for row in rows if not re.match(r"[a-z0-9._-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", row)
    ] == []


def test_locks_of_what_runs_side_by_side_agree():
    dev = lock("dev.txt")
    different = {
        (name, package): (versions, dev[package])
        for name in ("platform.txt", "airflow.txt", "trainer-cpu.txt", "mlflow.txt")
        for package, versions in lock(name).items()
        if package in dev and not versions <= dev[package]
    }
    assert different == {}


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("dev.txt", ["cli", "airflow", "trainer", "platform", "dev"]),
        ("platform.txt", ["cli", "airflow", "trainer", "platform"]),
        ("airflow.txt", ["cli", "airflow"]),
        ("trainer-cpu.txt", ["cli", "trainer"]),
        ("trainer-gpu.txt", ["cli", "gpu-trainer"]),
    ],
)
def test_a_lock_holds_its_extras(name, extras):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(r for extra in extras for r in project["optional-dependencies"][extra]),
    ]
    names = {re.split(r"[\[<>=!;~ ]", requirement)[0].lower() for requirement in wanted}
    assert sorted(names - {"dmls"} - set(lock(name))) == []


def test_the_trainer_holds_no_airflow_and_airflow_no_rapids():
    for name in TRAINERS:
        assert [package for package in lock(name) if package.startswith("apache-airflow")] == []
    for name in ("airflow.txt", "dev.txt", "platform.txt"):
        assert [p for p in lock(name) if p.partition("-")[0] in RAPIDS] == []


# -- imports -------------------------------------------------------------------------------------------


def test_engines_import_their_libraries_within_functions():
    """The catalogue is read where scikit-learn, XGBoost, LightGBM, Treelite or RAPIDS are not installed."""
    heavy = {*RAPIDS, "sklearn", "xgboost", "lightgbm", "treelite"}
    early = []
    for file in python_files("dmls_core", "dags", "plugins"):
        module = module_of(file)
        for node in ast.parse(file.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            banned = heavy if module.startswith("dmls_core.models") else set(RAPIDS)
            if any(name.split(".")[0] in banned for name in names):
                early.append(module)
    assert early == []


# -- tools ---------------------------------------------------------------------------------------------


def test_every_pre_commit_hook_is_a_local_tool_that_is_there():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        tool = hook["entry"].split()[0]
        assert tool.startswith(".venv/bin/")
        assert (BIN / Path(tool).name).exists(), tool
    done = subprocess.run([BIN / "pre-commit", "validate-config", ROOT / ".pre-commit-config.yaml"])
    assert done.returncode == 0


def test_make_help_lists_the_targets():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = [line.split()[1] for line in done.stdout.splitlines()]
    assert set(targets) >= {"setup", "demo", "up", "down", "test", "lint", "lock", "clean", "help"}


@pytest.mark.parametrize("script", [".ci/run", "requirements/fetch_uv.sh"])
def test_scripts_are_executable_and_parse(script):
    file = ROOT / script
    assert file.stat().st_mode & 0o111
    shell = file.read_text().splitlines()[0].removeprefix("#!").rpartition("/")[2]
    assert subprocess.run([shell, "-n", file]).returncode == 0


def test_the_command_the_plugin_and_the_provider_are_entry_points():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    targets = [
        *project["scripts"].values(),
        *project["entry-points"]["airflow.plugins"].values(),
        *project["entry-points"]["apache_airflow_provider"].values(),
    ]
    for target in targets:
        module, _, name = target.partition(":")
        file = ROOT / f"{module.replace('.', '/')}.py"
        defined = [
            n.name for n in ast.parse(file.read_text()).body if isinstance(n, ast.ClassDef | ast.FunctionDef)
        ]
        assert name in defined


def test_the_wheel_holds_what_the_package_reads(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= {
        "dmls_core/py.typed",
        "dmls_core/cli/demo.toml",
        "dmls_core/airflow/dags/dmls_intake.py",
        "dmls_core/devstack/requirements/triton.txt",
    }
    here = {str(file.relative_to(ROOT)) for file in (ROOT / "dmls_core").rglob("*") if file.is_file()}
    assert {name for name in here if "__pycache__" not in name} <= names
    assert [name for name in names if name.startswith(("tests/", "docs/"))] == []
    metadata = zipfile.ZipFile(wheel).read(f"dmls-{version()}.dist-info/METADATA").decode()
    assert re.findall(r"^Project-URL: (\w+), https://", metadata, re.MULTILINE)
    links = re.findall(r"\]\(([^)]+)\)", metadata)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
