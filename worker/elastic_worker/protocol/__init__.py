"""What coordinator and launchers say to each other: each message a dataclass, with a line on its meaning.

`codec` turns them into the keys of a JSON object and back; docs/protocol.md is made from them.
"""
