"""Reserved tables and the top of a spec: what is said of those that are wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dmls_core.errors import SpecError, ValidationIssue
from dmls_core.models import CATALOGUE, load_spec
from dmls_core.models.engines.forests import SklearnForestEngine
from dmls_core.spec import Choice, parse_spec
from dmls_core.spec.cron import cron_issue

Fault = Callable[[str], ValidationIssue]
Issues = Callable[[str], list[ValidationIssue]]

MODEL = 'model = "random-forest-classifier"\n'
REGRESSOR = 'model = "random-forest-regressor"\n'
COLUMNS = '[columns]\ntarget = "y"\n'


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        (COLUMNS, 1, "model", ["missing", "lightgbm-regressor", 'model = "auto-classifier"']),
        ("model = 5\n" + COLUMNS, 1, "model", ["must be the name of a model"]),
        ("model = []\n" + COLUMNS, 1, "model", ["is empty"]),
        ('\nmodel = "random-forest-clasifier"\n' + COLUMNS, 2, "model", ["mean random-forest-classifier?"]),
        ('model = "Random Forest Classifier"\n' + COLUMNS, 1, "model", ["mean random-forest-classifier?"]),
        ('model = "svm"\n' + COLUMNS, 1, "model", ["not a known model"]),
        ('model = ["xgboost-regressor",\n"xgboost-regressor"]\n' + COLUMNS, 2, "model[1]", ["twice"]),
        (
            'model = ["xgboost-regressor",\n"xgboost-classifier"]\n' + COLUMNS,
            2,
            "model[1]",
            ["for classification, but the first model is for regression"],
        ),
        ("n_trials = 0\n" + MODEL + COLUMNS, 1, "n_trials", ["out of bounds", "from 1 to 10,000"]),
        ("n_trials = 10_001\n" + MODEL + COLUMNS, 1, "n_trials", ["out of bounds"]),
        ("n_trials = 5.0\n" + MODEL + COLUMNS, 1, "n_trials", ["must be an integer", "5.0"]),
        ("n_trials = true\n" + MODEL + COLUMNS, 1, "n_trials", ["must be an integer"]),
        ("n_trials = '5'\n" + MODEL + COLUMNS, 1, "n_trials", ["remove the quotes"]),
        ("n_trails = 5\n" + MODEL + COLUMNS, 1, "n_trails", ["did you mean n_trials?"]),
        ("[colums]\ntarget = 'y'\n" + MODEL.replace("model", "modle"), 1, "model", ["missing"]),
        (MODEL, 1, "columns", ["missing", "target"]),
        (MODEL + "columns = ['y']", 2, "columns", ["must be a table", "[columns]"]),
        (MODEL + "[columns]\nfeatures = ['x']", 2, "columns.target", ["missing", 'target = "price"']),
        (MODEL + COLUMNS + "[serch]\nseed = 1", 4, "serch", ["did you mean search?"]),
        (MODEL + COLUMNS + "[search]\nsede = 1", 5, "search.sede", ["did you mean seed?", "[search]"]),
        (MODEL + COLUMNS + "n_trials = 5", 4, "columns.n_trials", ["belongs above the first [table]"]),
    ],
)
def test_top_level_keys(issues_of: Issues, text: str, line: int, key: str, words: list[str]) -> None:
    issue = next(issue for issue in issues_of(text) if issue.key == key)
    assert issue.line == line
    for word in words:
        assert word in f"{issue} found {issue.found} expected {issue.expected}"


@pytest.mark.parametrize(
    ("body", "line", "key", "words"),
    [
        ("features = 'x'", 4, "columns.features", ["must be a list", '["x"]']),
        ("features = []", 4, "columns.features", ["empty", "remove it"]),
        ("features = ['a',\n'y']", 5, "columns.features[1]", ["is also the target column"]),
        ("features = ['a',\n'b',\n'a']", 6, "columns.features[2]", ["appears twice"]),
        ("features = ['a', 3]", 4, "columns.features[1]", ["string in quotes"]),
        ("features = ['a', '']", 4, "columns.features[1]", ["is empty"]),
        ('features = ["a\\tb"]', 4, "columns.features[0]", ["control characters"]),
        ("features = ['a']\ncategorical = ['b']", 5, "columns.categorical[0]", ["not a feature"]),
        ("features = ['age']\ncategorical = ['Age']", 5, "columns.categorical[0]", ["did you mean age?"]),
        ("categorical = ['y']", 4, "columns.categorical[0]", ["is the target column, not a feature"]),
        ("categorical = ['a']\ndrop = ['a']", 4, "columns.categorical[0]", ["is dropped"]),
        ("features = ['a']\nsensitive = ['A']", 5, "columns.sensitive[0]", ["did you mean a?"]),
        ("sensitive = ['y']", 4, "columns.sensitive[0]", ["is the target column, not a feature"]),
        ("sensitive = ['a']\ndrop = ['a']", 4, "columns.sensitive[0]", ["is dropped"]),
        ("features = ['a']\ndrop = ['a']", 5, "columns.drop[0]", ["is also a feature"]),
        ("drop = ['y']", 4, "columns.drop[0]", ["is also the target column"]),
        ("id = 'y'", 4, "columns.id", ["is also the target column"]),
        ("id = 'a'\nfeatures = ['a']", 5, "columns.features[0]", ["is also the id column"]),
        ("id = ['a']", 4, "columns.id", ["string in quotes"]),
        ("traget = 'y'", 4, "columns.traget", ["did you mean target?"]),
    ],
)
def test_columns(issues_of: Issues, body: str, line: int, key: str, words: list[str]) -> None:
    (issue,) = issues_of(MODEL + COLUMNS + body)
    assert (issue.line, issue.key) == (line, key)
    for word in words:
        assert word in str(issue)


@pytest.mark.parametrize(
    ("body", "key", "words"),
    [
        ("[data]\npath = '../other/x.csv'", "data.path", ["in the spec's folder"]),
        ("[data]\npath = '/etc/passwd'", "data.path", ["in the spec's folder"]),
        ("[data]\npath = 's3://bucket/x.csv'", "data.path", ["in the spec's folder"]),
        ("[data]\npath = 'a\\b.csv'", "data.path", ["in the spec's folder"]),
        ("[data]\npath = ''", "data.path", ["is empty"]),
        ("[data]\nlabels = '../labels.csv'\n[drift]", "data.labels", ["in the spec's folder"]),
        ("[data]\nlabels = 'labels/{hour}.csv'\n[drift]", "data.labels", ["{hour} without {day}"]),
        ("[data]\nlabels = '*/*/*.csv'\n[drift]", "data.labels", ["more than 2 *"]),
        ("[data]\nlabels = 'labels.csv'", "data.labels", ["requires [drift]", "no predictions are logged"]),
        ("[data]\nlabels = 'labels.csv'\n[drift]\nsample = 0", "data.labels", ["requires drift.sample"]),
        (
            "[data]\npath = '*/{date}.csv'\nlabels = 'labels/{date}.csv'\n[drift]",
            "data.labels",
            ["matches training data", "their own folder"],
        ),
        ("[data]\npath = 'a.csv'\nlabels = '*.csv'\n[drift]", "data.labels", ["matches training data"]),
        ("[data]\nformat = 'cvs'", "data.format", ['"csv", "excel", "jsonl"', "did you mean csv?"]),
        ("[search]\nstrategy = 'gird'", "search.strategy", ["did you mean grid?"]),
        ("[search]\nmetric = 'acuracy'", "search.metric", ["did you mean accuracy?", "classification"]),
        ("[search]\nmetric = 'r2'", "search.metric", ["not a metric for classification"]),
        ("[search]\ntimeout = 0", "search.timeout", ["must be more than 0"]),
        ("[search]\ntimeout = '60'", "search.timeout", ["must be a number", "remove the quotes"]),
        ("[search]\nfolds = 1", "search.folds", ["must be at least 2"]),
        ("[search]\nfolds = 3.0", "search.folds", ["must be an integer"]),
        ("[search]\nseed = -1", "search.seed", ["must be at least 0"]),
        ("[search]\nseed = 4294967296", "search.seed", ["must be less than 4,294,967,296"]),
        (
            "[search]\nearly_stop = 0",
            "search.early_stop",
            ["a number of trials from 1 to 10,000, or a table"],
        ),
        ("[search]\nearly_stop = true", "search.early_stop", ["a number of trials"]),
        ("[search]\nearly_stop = '5'", "search.early_stop", ["a number of trials"]),
        ("[search.early_stop]\ntrails = 5", "search.early_stop.trails", ["did you mean trials?"]),
        ("[search.early_stop]\ntrials = 0", "search.early_stop.trials", ["must be at least 1"]),
        ("[search.early_stop]\nconverged = 1", "search.early_stop.converged", ["must be at least 2"]),
        ("[search.early_stop]\ntarget = 'x'", "search.early_stop.target", ["must be a number"]),
        ("[search.early_stop]\ntolerance = 0.1", "search.early_stop", ["set trials, target or converged"]),
        ("[search]\nstrategy = 'cmaes'", "search.strategy", ["did you mean cma-es?"]),
        ("[evaluation]\nholdout = 1.5", "evaluation.holdout", ["must be at most 0.9"]),
        ("[evaluation]\nholdout = 0", "evaluation.holdout", ["must be at least 0.01"]),
        ("[evaluation]\nsplit = 'stratify'", "evaluation.split", ["did you mean stratified?"]),
        ("[evaluation]\nsplit = 'time'", "evaluation.split", ["requires a time column"]),
        ("[expectations]\nmin_rows = 9\nmax_rows = 3", "expectations.max_rows", ["below min_rows"]),
        ("[expectations]\nmax_missing = 20", "expectations.max_missing", ["must be at most 1"]),
        ("[expectations.columns]\na = 3", "expectations.columns.a", ["must be a table"]),
        ("[expectations.columns.a]\nmax = 'x'", "expectations.columns.a.max", ["must be a number"]),
        ("[expectations.columns.a]\nmin = 3\nmax = 1", "expectations.columns.a.max", ["below min"]),
        ("[expectations.columns.a]\npatern = 'x'", "expectations.columns.a.patern", ["mean pattern?"]),
        ("[expectations.columns.a]\npattern = '['", "expectations.columns.a.pattern", ["not a regular"]),
        ("[expectations.columns.a]\npattern = '(?u)(?a)'", "expectations.columns.a.pattern", ["flags"]),
        (
            "".join(f"[expectations.columns.c{i}]\npattern = '{'x' * 490}{i}'\n" for i in range(30)),
            "expectations.columns",
            ["too much text in patterns"],
        ),
        ("[expectations.columns.a]\npattern = 'x'\nmin = 1", "expectations.columns.a.pattern", ["for text"]),
        (
            "[expectations.columns.a]\nvalues = [[1]]",
            "expectations.columns.a.values[0]",
            ["must be a number"],
        ),
        (
            "[data]\npath = '{date}.csv'\n[schedule]\ncron = '@weekly'\ndeadline = 60",
            "schedule.deadline",
            ["has no recipient", "[owner] notify"],
        ),
        ("[schedule]\ncron = '@weekly'\ndeadline = 0", "schedule.deadline", ["must be more than 0"]),
        ("[schedule]\ncatchup = true", "schedule.cron", ["missing", '"@weekly"']),
        ("[schedule]\ncron = '99 * * * *'", "schedule.cron", ["minute", "0 to 59"]),
        ("[schedule]\ncron = '@weekly'\ntimezone = 'Europe/Viena'", "schedule.timezone", ["not a time zone"]),
        ("[deploy]\nmode = 'automatic'", "deploy.mode", ['"manual", "auto", "never"', "did you mean auto?"]),
        ("[deploy]\nmin_metric = true", "deploy.min_metric", ["must be a number"]),
        ("[drift]\nsample = 2", "drift.sample", ["must be at most 1"]),
        ("[drift]\nthreshold = 0", "drift.threshold", ["more than 0"]),
        ("[drift]\naction = 'retrain'", "drift.action", ["would train on the same data again", "{date}"]),
        ("[drift]\naction = 'retry'", "drift.action", ['"report", "retrain"', "did you mean retrain?"]),
        ("[resources]\nengine = 'cuda'", "resources.engine", ['"auto", "cpu", "gpu"']),
        ("[resources]\nengine = 'cpu'\ngpus = 1", "resources.gpus", ["cpu engine"]),
        ("[resources]\nengine = 'gpu'\ngpus = 0", "resources.gpus", ["at least 1"]),
        ("[resources]\nmemory = 8", "resources.memory", ["string in quotes"]),
        ("[resources]\nmemory = '8 gigs'", "resources.memory", ['"8 GiB"']),
        ("[resources]\nmemory = '8'", "resources.memory", ["at least 64 MiB"]),
        ("[owner]\nemail = 'nobody'", "owner.email", ["ml-team@example.com"]),
        ("[tags]\na = 1", "tags.a", ["string in quotes"]),
        ("[tags]\n'mlflow.user' = 'x'", 'tags."mlflow.user"', ["is reserved"]),
        ("[tags]\n'a=b' = 'x'", 'tags."a=b"', ["not a name for a tag"]),
        ("[[tags]]\na = 'x'", "tags", ["must be a table"]),
    ],
)
def test_other_tables(issues_of: Issues, body: str, key: str, words: list[str]) -> None:
    (issue,) = issues_of(MODEL + COLUMNS + body)
    assert issue.key == key
    assert issue.line
    assert issue.line >= 4
    for word in words:
        assert word in str(issue)


def test_regressors_are_not_stratified(issues_of: Issues) -> None:
    (issue,) = issues_of(REGRESSOR + COLUMNS + "[evaluation]\nsplit = 'stratified'")
    assert issue.message == "cannot be stratified for a regressor"


def test_a_grid_has_a_limit(issues_of: Issues) -> None:
    steps = "[n_estimators]\nmin = 1\nmax = 9999\nstep = 1\n[max_depth]\nmin = 1\nmax = 999\nstep = 1\n"
    (issue,) = issues_of(MODEL + COLUMNS + steps + "[search]\nstrategy = 'grid'")
    assert issue.key == "search.strategy"
    assert issue.found == "9989001"
    assert issues_of(MODEL + COLUMNS + steps.replace("step = 1", "") + "[search]\nstrategy = 'grid'") == []


def test_cma_es_requires_a_range(issues_of: Issues) -> None:
    text = MODEL + COLUMNS + "[search]\nstrategy = 'cma-es'\n[criterion]\nvalues = ['gini', 'entropy']\n"

    (issue,) = issues_of(text)

    assert issue.key == "search.strategy"
    assert "random-forest-classifier has none" in issue.message
    assert issues_of(text + "[max_depth]\nmin = 3\nmax = 9\n") == []


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (MODEL + COLUMNS + "[data]\npartition = 'day'", "data.partition"),
        (MODEL + COLUMNS + "[resources]\ngpus = 2", "resources.gpus"),
    ],
)
def test_unavailable_keys_are_rejected(issues_of: Issues, text: str, key: str) -> None:
    (issue,) = issues_of(text)
    assert issue.key == key
    assert "not available yet" in issue.message
    assert issue.hint


def test_unavailable_keys_are_reported_after_other_issues(issues_of: Issues) -> None:
    (issue,) = issues_of(MODEL + COLUMNS + "[data]\npartition = 'day'\n[search]\nfolds = 0")
    assert issue.key == "search.folds"


@pytest.mark.parametrize(
    "cron",
    [
        "* * * * *",
        "0 6 * * 1",
        "*/15 0-6 1,15 * mon-fri",
        "0 0 1 JAN sun",
        "@daily",
        "59 23 31 12 7",
        "1-9/2 * * * *",
        "0 0 29 2 *",
        "0 0 31 */2 *",
        "0 0 31 2 mon",
    ],
)
def test_valid_cron_expressions(cron: str) -> None:
    assert cron_issue(cron) == ""


@pytest.mark.parametrize(
    "cron",
    [
        "", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8",
        "*/0 * * * *", "5-1 * * * *", "@never", "a * * * *", "1,,2 * * * *", "-1 * * * *", "* * * mon *",
        "² * * * *",
        "0 0 30 2 *",
        "0 0 31 apr,6 *",
        "0 0 30/1 feb *",
    ],
)  # fmt: skip
def test_invalid_cron_expressions(cron: str) -> None:
    assert cron_issue(cron)


def test_tables_of_a_model_override_common_ones() -> None:
    spec = parse_spec(
        b"""
        model = ["random-forest-classifier", "xgboost-classifier"]
        [columns]
        target = "y"
        [max_depth]
        values = [3, 4]
        [learning_rate]
        value = 0.1
        [xgboost-classifier.max_depth]
        value = 9
        """,
        CATALOGUE,
    )
    forest, boosted = spec.models
    assert forest.hyperparameters["max_depth"] == Choice(values=(3, 4))
    assert boosted.hyperparameters["max_depth"] == Choice(values=(9,))
    assert boosted.hyperparameters["learning_rate"] == Choice(values=(0.1,))
    assert "learning_rate" not in forest.hyperparameters
    assert spec.n_trials == 3
    with pytest.raises(ValueError, match="unpack"):
        _ = spec.model


def test_an_issue_in_a_common_table_is_reported_once(issues_of: Issues) -> None:
    text = 'model = ["random-forest-classifier", "extra-trees-classifier"]\n' + COLUMNS
    (issue,) = issues_of(text + "[n_estimators]\nvalue = 0")
    assert issue.key == "n_estimators.value"


def test_admission_checks_the_gpu_engine(issues_of: Issues) -> None:
    gpu = MODEL + COLUMNS + "[resources]\nengine = 'gpu'\n"
    issues = issues_of(
        gpu
        + "[class_weight]\nvalues = ['none',\n'balanced_subsample']\n[ccp_alpha]\nmin = 0.0\nmax = 0.1\n"
        + "[random-forest-classifier.max_samples]\nvalue = 100"
    )
    assert [(issue.line, issue.key) for issue in issues] == [
        (8, "class_weight.values[1]"),
        (9, "ccp_alpha"),
        (12, "random-forest-classifier.max_samples"),
    ]
    assert issues_of(gpu + "[ccp_alpha]\nvalue = 0.0\n[class_weight]\nvalue = 'balanced'") == []
    (issue,) = issues_of("model = 'lightgbm-classifier'\n" + COLUMNS + "[resources]\nengine = 'gpu'")
    assert (issue.line, issue.key) == (5, "resources.engine")
    assert issue.expected == "cpu or auto"


XGBOOST = "model = 'xgboost-classifier'\n" + COLUMNS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (XGBOOST + "[resources]\nnodes = 2\nengine = 'gpu'", ["gpu engine", "cpu"]),
        (XGBOOST + "[search]\nworkers = 2\n[resources]\nnodes = 2", ["workers = 1"]),
        (XGBOOST + "[search]\nworkers = 'auto'\n[resources]\nnodes = 2", ["workers = 1"]),
        (XGBOOST + "[search]\nensemble = true\n[resources]\nnodes = 2", ["ensemble"]),
        (XGBOOST + "[resources]\nnodes = 0", ["at least 1"]),
        (XGBOOST + "[resources]\nnodes = 17", ["at most 16", "DMLS_SPEC_NODES"]),
    ],
)
def test_nodes_that_cannot_be_had(issues_of: Issues, text: str, words: list[str]) -> None:
    (issue,) = issues_of(text)
    assert issue.key == "resources.nodes"
    assert all(word in str(issue) for word in words)


def test_nodes_for_an_engine_that_has_none(issues_of: Issues, monkeypatch: pytest.MonkeyPatch) -> None:
    text = MODEL + COLUMNS + "[resources]\nnodes = 2"
    assert issues_of(text) == []
    monkeypatch.setattr(SklearnForestEngine, "distributed", False)
    found = str(issues_of(text)[0])
    assert "not supported by random-forest" in found
    assert "lightgbm-classifier, lightgbm-regressor, xgboost-classifier" in found


def test_nodes_for_xgboost_do_not_change_the_hash_of_other_specs(issues_of: Issues) -> None:
    assert issues_of(XGBOOST + "[resources]\nnodes = 16") == []
    one, two = (load_spec((XGBOOST + f"[resources]\nnodes = {nodes}").encode()) for nodes in (1, 2))
    assert one.sha256 == load_spec(XGBOOST.encode()).sha256 != two.sha256


def test_issues_name_the_file() -> None:
    with pytest.raises(SpecError, match=r"^s3://bucket/spec\.toml:1:1: model: is missing"):
        load_spec(b"", "s3://bucket/spec.toml")


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("[evaluation]\nsplit = 'time'", "evaluation.split", "requires a time column"),
        (
            "group = 'g'\n[evaluation]\nsplit = 'stratified'",
            "evaluation.split",
            "combined with columns.group",
        ),
        ("group = 'g'\ntime = 't'\n[evaluation]\nsplit = 'time'", "evaluation.split", "with columns.group"),
        (
            "[evaluation]\nsplit = 'stratified'\ngroup_duplicates = true",
            "evaluation.split",
            "combined with evaluation.group_duplicates",
        ),
        ("group = 'y'", "columns.group", "is also the target column"),
        ("features = ['t']\ntime = 't'", "columns.features[0]", "is also the time column"),
        ("features = ['g']\ngroup = 'g'", "columns.features[0]", "is also the group column"),
        ("dates = ['g']\ngroup = 'g'", "columns.dates[0]", "is the group column, not a feature"),
    ],
)
def test_splits_that_contradict_each_other(issues_of: Issues, text: str, key: str, message: str) -> None:
    (issue,) = issues_of(MODEL + COLUMNS + text)

    assert issue.key == key
    assert message in issue.message


def test_a_metric_and_a_model_must_support_weights(issues_of: Issues) -> None:
    (issue,) = issues_of(REGRESSOR + COLUMNS + "weight = 'w'\n[search]\nmetric = 'max_error'")
    assert issue.key == "search.metric"
    assert "rmse" in issue.expected

    (issue,) = issues_of(MODEL + COLUMNS + "weight = 'w'\n[resources]\nengine = 'gpu'")
    assert issue.key == "columns.weight"
    assert "random-forest-classifier on the gpu engine" in issue.message


def test_a_time_column_is_a_feature_if_it_is_one_of_the_dates(issues_of: Issues) -> None:
    times = "features = ['a', 't']\ndates = ['t']\ntime = 't'\n[evaluation]\nsplit = 'time'"
    assert issues_of(MODEL + COLUMNS + times) == []
