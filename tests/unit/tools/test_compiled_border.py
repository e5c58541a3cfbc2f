"""The check of the border finds what uncompiled code cannot see of compiled classes, and nothing else."""

from __future__ import annotations

from pathlib import Path

import compiled_border
import pytest

MODULE = '''"""A compiled module."""


class Animal:
    def __init__(self) -> None:
        self.name = ""
        self.age = 0
        self.mood = 0

    def speak(self) -> str:
        return self.name

    def think(self) -> str:
        return ""

    def plain(self) -> None:
        pass

    @staticmethod
    def create() -> "Animal":
        return Animal()


def feed(animal: Animal) -> None:
    pass


def pet(animal: Animal) -> None:
    pass
'''
DECLARED = """cimport cython


cdef class Animal:
    cdef readonly str name  # and a comment
    cdef public Py_ssize_t age
    cdef unsigned int mood
    @cython.locals(
        a=int, b=int
    )
    cpdef speak(self)
    cdef str think(
        self,
        (int, int) about=*
    )
    @staticmethod
    cdef Animal create()


cdef feed(Animal animal)
cpdef int pet(Animal animal) except -1
"""
ANIMAL = "animals.Animal"
SEES, SETS = "is cdef, which only compiled code sees", "is cdef readonly, which only compiled code sets"


def check(root: Path, user: str) -> list[str]:
    package = root / "src" / "flintmq"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "animals.py").write_text(MODULE)
    (package / "animals.pxd").write_text(DECLARED)
    (package / "user.py").write_text(user)
    found = compiled_border.check(root, ["flintmq.animals"], [str(root / "src")])
    assert {finding.path for finding in found} <= {"src/flintmq/user.py"}
    return [f"{finding.line}: {finding.text}" for finding in found]


def test_what_is_hidden_is_told_with_its_line(tmp_path: Path) -> None:
    user = """from __future__ import annotations
from flintmq import animals
from flintmq.animals import Animal, feed, pet


class Cat(Animal):
    def think(self) -> str:
        return "fish"

    def speak(self) -> str:
        return "meow"

    def sulk(self) -> None:
        self.mood = 1


def of_all_sorts(one: Animal | None, many: dict[str, list[Animal]], cat: Cat) -> None:
    if one is not None:
        one.think()
    for found in many["cats"]:
        found.name, found.age = "", 3
    animals.feed(cat)
    Animal.create()
    [each.mood for each in many["dogs"]]
    cat.age += 1
    cat.speak()
    cat.think()
    one = Animal()
    one.plain()
    pet(one)
    print(one.name, (lambda: cat.mood)())
"""
    assert check(tmp_path, user) == [
        f"3: animals.feed {SEES}",
        f"6: Cat overrides {ANIMAL}.think, which is cdef",
        f"14: {ANIMAL}.mood {SEES}",
        f"19: {ANIMAL}.think {SEES}",
        f"21: {ANIMAL}.name {SETS}",
        f"22: animals.feed {SEES}",
        f"23: {ANIMAL}.create {SEES}",
        f"24: {ANIMAL}.mood {SEES}",
        f"31: {ANIMAL}.mood {SEES}",
    ]


def test_what_is_visible_is_left_alone(tmp_path: Path) -> None:
    user = """from flintmq.animals import Animal, pet


class Fish:
    mood = 3


def about(animal: Animal, fish: Fish) -> None:
    animal.age += fish.mood
    pet(animal)
    print(animal.name, animal.speak(), animal.plain())
"""
    assert check(tmp_path, user) == []


def test_the_list_of_compiled_modules_is_that_of_the_build() -> None:
    modules = compiled_border.compiled_modules(compiled_border.ROOT / "setup.py")
    assert "flintmq.broker.queues.queue" in modules
    border = compiled_border.border_of(modules, compiled_border.ROOT / "src")
    assert border.seen("flintmq.broker.queues.queue.Queue", "enqueue") == compiled_border.VISIBLE
    assert border.seen("flintmq.broker.queues.queue.Queue", "arguments") == compiled_border.READ_ONLY
    assert border.seen("flintmq.broker.queues.queue.Queue", "turn") == compiled_border.HIDDEN


def test_a_build_file_without_the_list_is_told(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("setup()\n")
    with pytest.raises(SystemExit, match="has no HOT_MODULES"):
        compiled_border.compiled_modules(tmp_path / "setup.py")
