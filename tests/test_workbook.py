"""Plots, report and terminal play, without a process of their own."""

import pytest

from agentrl_lab.config import EnvConfig, TrainConfig
from agentrl_lab.learner.rundir import RunDir, RunDirError
from agentrl_lab.records import Call
from agentrl_lab.workbook import playing, plots, training
from agentrl_lab.workbook.doctoring import examine
from agentrl_lab.workbook.report import table
from agentrl_lab.workbook.training import desk_of, next_folder
from agentrl_lab.world.env import TicketEnv
from agentrl_lab.world.tasks import make_task

ROW = {
    "success_rate": 0.3, "validation_success": 0.4, "fabrication_rate": 0.5, "invalid_rate": 0.1,
    "entropy_per_decision": 1.0, "entropy_per_token": 0.1, "kl_old_max": 0.01,
    "turns_per_episode": 2.0, "reward_per_episode": -0.2,
}  # fmt: skip
ROWS = [
    {"update": 0, "episodes": 0, "validation_success": 0.1},
    {"update": 1, "episodes": 64, **ROW},
    {"update": 2, "episodes": 128, **ROW, "validation_success": 0.9, "success_rate": 0.8},
]


def test_a_full_disk_is_told_with_the_folder_and_the_way_on(tmp_path, monkeypatch):
    class Full:
        run, notes, config = RunDir.create(tmp_path / "run", TrainConfig()), [], TrainConfig()

        def fit(self, report):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(training, "start_run", lambda *_: Full())
    monkeypatch.setattr(training, "_opening", lambda trainer: "")
    monkeypatch.setattr(training, "_Progress", lambda *_: None)
    with pytest.raises(RunDirError, match=r"No space left.* go on by `agentrl-lab train --resume"):
        training.run_training(tmp_path / "run", None, {}, print)


def test_learning_curve_says_in_words_what_it_shows():
    picture = plots.learning_curve(ROWS)
    assert "from 0.10 to 0.90" in picture.sentence
    assert "from 0.30 to 0.80" in picture.sentence
    assert picture.png().startswith(b"\x89PNG")


def test_lines_of_a_panel_differ_in_style_not_only_in_colour():
    for axes in plots.learning_curve(ROWS).figure.axes:
        lines = axes.get_lines()
        assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == len(lines)


def test_learning_curve_of_an_untrained_run_still_draws():
    assert plots.learning_curve(ROWS[:1]).sentence.endswith("from 0.10 to 0.10.")


def test_entropy_and_kl_of_a_run_without_an_update_says_so():
    assert "No update was made yet" in plots.entropy_and_kl(ROWS[:1]).sentence
    assert "nats per token" in plots.entropy_and_kl(ROWS).sentence


@pytest.mark.parametrize(
    ("content", "hinted"),
    [("S1 is closed.", True), ("Please wait.", True), ("Ticket S1 is unpaid.", False)],
)
def test_verdict_says_how_a_reply_is_read_where_the_words_may_be_the_trouble(content, hinted):
    env = TicketEnv()
    index = next(n for n in range(40) if make_task("train", 0, n).kind == "status_only")
    env.reset(options={"index": index})
    env.play(env.codec.render(Call("reply", {"content": content})))
    assert ('"is closed" is read as' in playing.verdict(env)) is hinted


def test_policy_of_a_run_meets_the_desk_that_it_was_trained_at(tmp_path, monkeypatch):
    own = EnvConfig(codec="id", tools="moved")
    run = RunDir.create(tmp_path / "run", TrainConfig(env=own))
    (run.path / "policy").mkdir()
    assert desk_of(str(run.path / "policy")) == own
    monkeypatch.chdir(run.path / "policy")
    assert desk_of(".") == own
    # another folder, or a name, beside a config.json that is not a run's business
    monkeypatch.chdir(run.path)
    assert desk_of("tiny-base") == desk_of("checkpoints") == EnvConfig()
    run.release()
    model = tmp_path / "model"
    (model / "policy").mkdir(parents=True)
    (model / "config.json").write_text('{"model_type": "llama"}')
    assert desk_of(str(model / "policy")) == EnvConfig()


def test_training_goes_on_at_the_desk_that_a_policy_knows(tmp_path, monkeypatch):
    """The policy of a run brings its desk; what is given on the command line comes before it."""
    run = RunDir.create(tmp_path / "run", TrainConfig(env=EnvConfig(codec="id", tools="moved")))
    (run.path / "policy").mkdir()
    run.release()
    asked = []

    def started(out, config):
        asked.append(config.env)
        raise RuntimeError("far enough")

    monkeypatch.setattr(training, "start_run", started)
    settings = {"policy": str(run.path / "policy"), "tools": "one_more"}
    with pytest.raises(RuntimeError, match="far enough"):
        training.run_training(tmp_path / "next", None, settings, print)
    assert asked == [EnvConfig(codec="id", tools="one_more")]


def test_a_file_in_place_of_a_folder_is_named_with_its_option(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunDirError, match="--out must be a folder"):
        training.run_warm_start("tiny-raw", tmp_path / "file", print)


def test_drawing_leaves_no_open_figure():
    import matplotlib.pyplot as plt

    plots.learning_curve(ROWS)
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("query S1234", '<function=query_ticket>{"ticket_id": "S1234"}</function>'),
        (
            "update S1234 closed",
            '<function=update_ticket>{"ticket_id": "S1234", "new_status": "closed"}</function>',
        ),
        ("reply It is closed.", '<function=reply>{"content": "It is closed."}</function>'),
        ("<function=reply>{}", "<function=reply>{}"),
        ("please wait", "please wait"),
    ],
)
def test_short_forms_are_written_out_and_other_text_is_sent_as_it_is(line, action):
    assert playing.expand(line, TicketEnv()) == action


def test_next_folder_is_the_first_free_one(tmp_path):
    (tmp_path / "001").mkdir()
    assert next_folder(tmp_path) == tmp_path / "002"


def test_table_aligns_its_columns():
    assert table([("a", "bb"), ("ccc", "d")]) == "a    bb\nccc  d"


def test_doctor_names_a_changed_data_file(tmp_path, monkeypatch):
    (tmp_path / "phrasings.json").write_text("{}")
    (tmp_path / "checksums.json").write_text('{"phrasings.json": "00", "gone.json": "11"}')
    monkeypatch.setenv("AGENTRL_LAB_DATA", str(tmp_path))
    wrong = {f.what: f.says for f in examine() if not f.ok}
    assert "changed" in wrong["data/phrasings.json"]
    assert "missing" in wrong["data/gone.json"]


def test_doctor_says_how_to_get_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTRL_LAB_DATA", str(tmp_path))
    wrong = {f.what: f.says for f in examine() if not f.ok}
    assert "clone" in wrong["data"]
