"""JupyterLab on this machine alone, on a personal copy of the notebooks.

The copy is the reader's: an upgrade refreshes what was not touched, and puts the new version of
anything else beside it. A manifest of hashes, as delivered, tells the one from the other.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from agentrl_lab.workbook.recording import write_json, write_whole
from agentrl_lab.workbook.sources import find_notebooks

OWN_FOLDER = ".agentrl-lab"
"""Inside the personal copy: manifest, settings, workspaces, log; nothing in the user's Jupyter."""
FIRST_PORT = 8888
ADDRESS = "127.0.0.1"
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/apputils-extension:kernels-settings": {"commsOverSubshells": "disabled"},
    "@jupyterlab/notebook-extension:tracker": {"kernelShutdown": True},
}
"""No question about news, no network, no callback beside a running cell, no kernel without tab."""

Say = Callable[[str], None]


def deliver(source: Path, folder: Path) -> list[str]:
    """Copies the notebooks into a personal folder, file by file; edits are never overwritten.

    Args:
        source: folder of the notebooks.
        folder: the personal one; made if it is not there.

    Returns:
        A line for each notebook whose new version was put beside an edited one.

    Raises:
        ValueError: both are one folder.
        FileNotFoundError: there are no notebooks.
    """
    if folder.resolve() == source.resolve():
        raise ValueError(f"--dir {folder} holds the originals: choose a folder of your own")
    originals, manifest, notes = find_notebooks([], source), _manifest(folder), []
    (folder / OWN_FOLDER).mkdir(parents=True, exist_ok=True)
    for original in originals:
        written = _deliver(original, folder, manifest)
        if written and written != original.name:
            notes.append(f"{original.name} has your edits and was kept; its new version: {written}")
    write_json(folder / OWN_FOLDER / "manifest.json", manifest)
    return notes


def _deliver(original: Path, folder: Path, manifest: dict[str, str]) -> str | None:
    """Writes one notebook where it destroys nothing; the name, None if nothing was to do."""
    content = original.read_bytes()
    digest = _hash(content)
    for name in _names(original):
        if manifest.get(name) == digest and (folder / name).exists():
            return None  # this version was delivered before, edited or not
        if _untouched(folder / name, manifest.get(name), digest):
            write_whole(folder / name, content)
            manifest[name] = digest
            return name


def _names(original: Path) -> Iterator[str]:
    yield original.name
    yield f"{original.stem}.new.ipynb"
    yield from (f"{original.stem}.new{number}.ipynb" for number in itertools.count(2))


def _untouched(path: Path, delivered: str | None, wanted: str) -> bool:
    return not path.exists() or _hash(path.read_bytes()) in (delivered, wanted)


def _manifest(folder: Path) -> dict[str, str]:
    try:
        return dict(json.loads((folder / OWN_FOLDER / "manifest.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return {}  # then everything counts as edited: nothing is lost


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def reset(source: Path, folder: Path, name: str) -> Path | None:
    """Puts one notebook back as delivered; the path of the backup of what was there, if anything.

    Args:
        source: folder of the notebooks.
        folder: the personal one.
        name: 00, 00_be_the_policy or 00_be_the_policy.ipynb.

    Raises:
        ValueError: no notebook is called that; the nearest is offered.
    """
    (original,) = find_notebooks([name.removesuffix(".ipynb")], source)
    own, content, backup = folder / original.name, original.read_bytes(), None
    (folder / OWN_FOLDER).mkdir(parents=True, exist_ok=True)
    if own.exists():
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
        backup = own.rename(folder / f"{own.stem}.backup-{stamp}.ipynb")
    write_whole(own, content)
    write_json(
        folder / OWN_FOLDER / "manifest.json", _manifest(folder) | {own.name: _hash(content)}
    )
    return backup


def command(
    folder: Path, port: int, token: str, *, browser: bool, environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Words and environment that start JupyterLab.

    Args:
        folder: the personal one.
        port: on 127.0.0.1.
        token: without which nothing is answered; in the environment, since other users of a shared
            machine see the words.
        browser: whether to open one.
        environment: to add to.
    """
    argv = [sys.executable, "-m", "jupyter", "lab", f"--ServerApp.ip={ADDRESS}"]
    argv += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    argv += [f"--ServerApp.root_dir={folder.resolve()}", "--ServerApp.answer_yes=True"]
    argv += ["--LabApp.extension_manager=readonly"]  # the other one asks the network
    argv += ["--KernelManager.transport_encryption=required"]  # or each kernel start warns
    argv += [] if browser else ["--no-browser"]
    argv += ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    own = folder.resolve() / OWN_FOLDER
    paths = [str(own), *filter(None, [environment.get("JUPYTER_CONFIG_PATH")])]
    added = {
        "JUPYTER_TOKEN": token,
        "JUPYTER_CONFIG_PATH": os.pathsep.join(paths),
        "JUPYTERLAB_WORKSPACES_DIR": str(own / "workspaces"),
    }
    return argv, {**environment, **added}


def write_settings(folder: Path) -> None:
    """The settings for this folder's JupyterLab; what the reader sets in its menus goes before."""
    place = folder / OWN_FOLDER / "labconfig"
    place.mkdir(parents=True, exist_ok=True)
    write_json(place / "default_setting_overrides.json", SETTINGS)


def choose_port(wanted: int | None) -> int:
    """The wanted port, or the first free one from 8888 on.

    Raises:
        ValueError: the wanted one is taken.
    """
    if wanted is None:
        return next(port for port in range(FIRST_PORT, 65536) if _free(port))
    if not _free(wanted):
        raise ValueError(f"--port {wanted} is taken: choose another, or leave it out")
    return wanted


def _free(port: int) -> bool:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((ADDRESS, port))
        except OSError:
            return False
    return True


def open_lab(source: Path, folder: Path, port: int | None, *, browser: bool, say: Say) -> None:
    """Runs JupyterLab until Ctrl-C; says its address, token included, once it answers.

    Args:
        source: folder of the notebooks.
        folder: the personal one.
        port: None for a free one.
        browser: whether to open one.
        say: told what the reader should know.

    Raises:
        ValueError: JupyterLab ended by itself, or as `deliver` and `choose_port`.
    """
    for note in deliver(source, folder):
        say(note)
    write_settings(folder)
    port, token = choose_port(port), secrets.token_urlsafe(24)
    argv, environment = command(folder, port, token, browser=browser, environment=os.environ)
    log = folder / OWN_FOLDER / "jupyterlab.log"
    with open(log, "wb") as file:
        server = subprocess.Popen(argv, env=environment, stdout=file, stderr=file)
        try:
            if _answers(server, port):
                say(f"your notebooks: {folder}, log: {log}; Ctrl-C ends JupyterLab")
                first = find_notebooks([], source)[0].name
                say(f"http://{ADDRESS}:{port}/lab/tree/{first}?token={token}")
            if server.wait():
                raise ValueError(f"JupyterLab ended with exit code {server.returncode}: see {log}")
        finally:
            _end(server)


def _answers(server: subprocess.Popen, port: int) -> bool:
    while server.poll() is None:
        with socket.socket() as attempt:
            if attempt.connect_ex((ADDRESS, port)) == 0:
                return True
        time.sleep(0.1)
    return False


def _end(server: subprocess.Popen) -> None:
    """Ends the server; it ends its kernels."""
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
