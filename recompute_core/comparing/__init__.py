"""Two studies next to each other: what was asked and found differently, and by how much. No torch.

Page, command line and JSON all call `compare`; there is no other arithmetic. A comparison says how two
runs differ, not why: between two machines, versions and hours more may differ than is listed.
"""
