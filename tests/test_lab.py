"""The personal copy of the notebooks, and JupyterLab on it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from agentrl_lab.config import DATA_VARIABLE
from agentrl_lab.workbook import lab
from tests import notebooks


@pytest.fixture
def place(tmp_path):
    """(folder of the notebooks, folder of the reader)."""
    notebooks.workplace(tmp_path)
    notebooks.write(tmp_path / "notebooks", "00_first", "1")
    notebooks.write(tmp_path / "notebooks", "05_second", "1")
    notebooks.write(tmp_path / "notebooks" / "solved", "00_first", "2")
    return tmp_path / "notebooks", tmp_path / "my notebooks"


def names(folder):
    return sorted(path.name for path in folder.glob("*.ipynb"))


def upgrade(source, text):
    notebooks.write(source, "00_first", text)
    return (source / "00_first.ipynb").read_bytes()


def edit(folder, name="00_first.ipynb", text=b"mine"):
    (folder / name).write_bytes(text)
    return text


def read(folder, name="00_first.ipynb"):
    return (folder / name).read_bytes()


def test_copy_holds_the_notebooks_and_not_the_solutions(place):
    source, own = place
    assert lab.deliver(source, own) == []
    assert names(own) == ["00_first.ipynb", "05_second.ipynb"]
    assert read(own) == read(source)


def test_upgrade_refreshes_what_was_not_touched(place):
    source, own = place
    lab.deliver(source, own)
    new = upgrade(source, "2")
    assert lab.deliver(source, own) == []
    assert read(own) == new and len(names(own)) == 2


def test_upgrade_keeps_edits_and_puts_the_new_version_beside(place):
    source, own = place
    lab.deliver(source, own)
    mine = edit(own)
    assert lab.deliver(source, own) == []  # no upgrade, nothing beside
    new = upgrade(source, "2")
    (line,) = lab.deliver(source, own)
    assert line == (
        "00_first.ipynb has your edits and was kept; its new version: 00_first.new.ipynb"
    )
    assert (read(own), read(own, "00_first.new.ipynb")) == (mine, new)
    assert lab.deliver(source, own) == []  # said once
    assert len(names(own)) == 3


def test_next_upgrade_refreshes_the_version_beside_but_not_if_that_was_edited(place):
    source, own = place
    lab.deliver(source, own)
    mine = edit(own)
    upgrade(source, "2")
    lab.deliver(source, own)
    new = upgrade(source, "3")
    assert len(lab.deliver(source, own)) == 1
    assert read(own, "00_first.new.ipynb") == new
    also_mine = edit(own, "00_first.new.ipynb", b"mine too")
    newer = upgrade(source, "4")
    assert lab.deliver(source, own)[0].endswith("its new version: 00_first.new2.ipynb")
    assert (read(own), read(own, "00_first.new.ipynb")) == (mine, also_mine)
    assert read(own, "00_first.new2.ipynb") == newer


@pytest.mark.parametrize("manifest", [None, "damaged", "[]"])
def test_without_a_manifest_nothing_is_overwritten(place, manifest):
    source, own = place
    own.mkdir()
    mine = edit(own)
    if manifest is not None:
        (own / lab.OWN_FOLDER).mkdir()
        (own / lab.OWN_FOLDER / "manifest.json").write_text(manifest)
    assert len(lab.deliver(source, own)) == 1
    assert read(own) == mine


def test_notebook_that_the_reader_removed_comes_back(place):
    source, own = place
    lab.deliver(source, own)
    (own / "00_first.ipynb").unlink()
    lab.deliver(source, own)
    assert read(own) == read(source)


def test_originals_are_not_taken_for_a_personal_copy(place):
    source, _ = place
    with pytest.raises(ValueError, match="holds the originals: choose a folder of your own"):
        lab.deliver(source, source / ".." / "notebooks")
    with pytest.raises(FileNotFoundError, match="make notebooks"):
        lab.deliver(source / "none", source)


@pytest.mark.parametrize("name", ["00", "00_first", "00_first.ipynb"])
def test_reset_restores_one_notebook_and_keeps_a_backup_of_it(place, name):
    source, own = place
    lab.deliver(source, own)
    first, second = edit(own), edit(own, "05_second.ipynb")
    backup = lab.reset(source, own, name)
    assert re.fullmatch(r"00_first\.backup-\d{8}-\d{6}-\d{6}\.ipynb", backup.name)
    assert backup.read_bytes() == first
    assert read(own) == read(source) and read(own, "05_second.ipynb") == second
    again = lab.reset(source, own, name)
    assert again != backup and backup.read_bytes() == first
    upgrade(source, "2")
    assert lab.deliver(source, own) == []  # as delivered, so refreshed
    assert read(own) == read(source)


def test_reset_of_an_unknown_notebook_offers_the_nearest(place):
    source, own = place
    with pytest.raises(ValueError, match="no notebook is called '00_frist': did you mean"):
        lab.reset(source, own, "00_frist")
    assert lab.reset(source, own, "05") is None  # nothing was there: no backup
    assert names(own) == ["05_second.ipynb"]


def test_command_is_on_loopback_with_the_token_out_of_sight(tmp_path):
    there = {"HOME": "/home/a", "JUPYTER_CONFIG_PATH": "/theirs"}
    argv, environment = lab.command(tmp_path, 8899, "secret", browser=False, environment=there)
    assert "--ServerApp.ip=127.0.0.1" in argv and "--ServerApp.port=8899" in argv
    assert "--ServerApp.port_retries=0" in argv and "--no-browser" in argv
    assert f"--ServerApp.root_dir={tmp_path}" in argv
    assert not any("secret" in word for word in argv)  # other users see the words of a process
    own = str(tmp_path / lab.OWN_FOLDER)
    assert environment == there | {
        "JUPYTER_TOKEN": "secret",
        "JUPYTER_CONFIG_PATH": f"{own}{os.pathsep}/theirs",
        "JUPYTERLAB_WORKSPACES_DIR": f"{own}/workspaces",
    }
    assert "--no-browser" not in lab.command(tmp_path, 1, "x", browser=True, environment={})[0]


def test_port_is_free_or_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"--port {port} is taken"):
            lab.choose_port(port)
    assert lab.choose_port(port) == port
    assert lab.choose_port(None) >= lab.FIRST_PORT


def test_missing_jupyterlab_is_one_line_with_the_remedy(monkeypatch):
    from agentrl_lab.workbook import commands

    monkeypatch.setattr(commands.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'jupyterlab is not installed; .*-e "\.\[lab\]"'):
        commands.lab()


# A real server


def get(address):
    with urllib.request.urlopen(address, timeout=10) as answer:
        return json.loads(answer.read())


@pytest.mark.slow
def test_lab_serves_the_copy_with_token_and_settings_and_ends(place, tmp_path):
    _, own = place
    home = tmp_path / "home"  # the reader's own Jupyter: must stay as it is
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if "JUPYTER" not in name}
    environment |= {"HOME": str(home), DATA_VARIABLE: str(tmp_path / "data")}
    words = ["-m", "agentrl_lab.cli", "lab", "--dir", str(own), "--no-browser"]
    server = subprocess.Popen(
        [sys.executable, *words], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        while not (line := server.stdout.readline()).startswith("http"):
            assert line, server.stderr.read()
        base, path, token = re.fullmatch(r"(.*:\d+)(/.*)\?token=(\S+)\s*", line).groups()
        assert base.startswith("http://127.0.0.1:") and path == "/lab/tree/00_first.ipynb"
        assert get(f"{base}/api/status?token={token}")["kernels"] == 0  # printed when it answers
        for address in (f"{base}/api/contents", f"{base}/api/contents?token=wrong"):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                get(address)
        listed = get(f"{base}/api/contents?token={token}")["content"]
        assert sorted(item["name"] for item in listed) == names(own)
        for plugin, wanted in lab.SETTINGS.items():
            seen = get(f"{base}/lab/api/settings/{plugin}?token={token}")
            defaults = seen["schema"]["properties"]
            assert {name: defaults[name]["default"] for name in wanted} == wanted
        assert not (home / ".jupyter").exists()
    finally:
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=60)
    assert (server.returncode, err) == (130, ""), out
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            get(f"{base}/api/status?token={token}")
        except OSError:
            break
    else:
        raise AssertionError("the server goes on")
