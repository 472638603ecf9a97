"""The messages between coordinator, launchers and training processes: each one is a dataclass, with its meaning.

`codec` turns them into keys of a JSON object and back. docs/protocol.md is generated from them.
"""
