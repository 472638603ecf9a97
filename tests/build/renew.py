"""Writes golden/ anew from `build/` as it is now: `uv run python -m tests.build.renew`."""

from tests.build.golden_files import FOLDER, as_yaml, golden_objects

COMMAND = "uv run python -m tests.build.renew"


def main() -> None:
    """Write every object into its golden file; the diff is for a person to read."""
    FOLDER.mkdir(exist_ok=True)
    for name, thing in golden_objects().items():
        (FOLDER / f"{name}.yaml").write_text(as_yaml(thing))


if __name__ == "__main__":
    main()
