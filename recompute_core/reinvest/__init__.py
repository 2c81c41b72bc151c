"""A second use of saved memory: what a larger microbatch buys, and what it does to rare defects.

Without torch: `asked` what is asked, `found` what was found, `recall` intervals of recall, `gates`
outcomes and verdict, `kept` where a run lies, `driver` what does it, `command` the terminal. With torch:
`accumulation` the accumulated update, `feed` its examples, `training` a whole run, `worker` one task in
a process of its own.
"""
