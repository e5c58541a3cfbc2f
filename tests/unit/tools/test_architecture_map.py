"""The map in ARCHITECTURE.md shows what the modules import."""

from __future__ import annotations

from pathlib import Path

import architecture_map
import pytest

CONTRACT = """
[[tool.importlinter.contracts]]
name = "Rooms"
containers = ["house"]
layers = ["door : bell", "(garden) : kitchen", "cellar", "stone"]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(CONTRACT)
    files = {
        "door.py": "import house.kitchen.stove\nfrom house import bell\nfrom house.cellar import wine\n",
        "bell.py": "import os\n",
        "kitchen/__init__.py": '"""Cooks. Begin with stove.py; pan.py comes later."""\n',
        "kitchen/stove.py": "def light():\n    from house.cellar import wine\n",
        "cellar/__init__.py": "",
        "cellar/wine.py": "if TYPE_CHECKING:\n    from house.kitchen.stove import light\n",
        "stone.py": "",
    }
    for name, text in files.items():
        path = tmp_path / "src" / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_boxes_are_layers_and_arrows_imports(root: Path) -> None:
    assert architecture_map.drawing(root, "house").split("\n") == [
        "```mermaid",
        "flowchart TD",
        '    box_door["door, bell"]',
        '    box_kitchen["kitchen/<br/>stove.py"]',
        '    box_cellar["cellar/"]',
        '    box_stone["stone"]',
        "    box_door --> box_kitchen",
        "    box_kitchen --> box_cellar",
        "    box_cellar -.-> box_kitchen",
        "```",
    ]


def test_packages_of_one_layer_that_import_each_other_are_told(root: Path) -> None:
    (root / "pyproject.toml").write_text(CONTRACT.replace('kitchen", "cellar"', 'kitchen : cellar"'))
    with pytest.raises(architecture_map.Undrawable, match="import each other: kitchen; cellar"):
        architecture_map.drawing(root, "house")


def test_a_container_without_layers_is_told(root: Path) -> None:
    with pytest.raises(architecture_map.Undrawable, match="no layers for hut"):
        architecture_map.drawing(root, "hut")


def test_the_drawing_goes_between_the_markers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architecture_map, "CONTAINERS", ("house",))
    begin = "<!-- map of house, made by tools/architecture_map.py -->"
    page = f"before\n{begin}\nstale\n{architecture_map.END}\nafter\n"
    now = architecture_map.drawn(root, page)
    drawing = architecture_map.drawing(root, "house")
    assert now == f"before\n{begin}\n{drawing}\n{architecture_map.END}\nafter\n"
    assert architecture_map.drawn(root, now) == now
    with pytest.raises(architecture_map.Undrawable, match="no place for a drawing"):
        architecture_map.drawn(root, "before\nafter\n")
