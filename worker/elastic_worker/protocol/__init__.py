"""What coordinator, launchers and training processes say to each other: each message a dataclass, with its meaning.

`codec` turns them into the keys of a JSON object and back; docs/protocol.md is made from them.
"""
