"""The hand-over of authority between the two stores, as steps over three small ports.

Knows the order of things: what closes, what decides, what undoes, and what a refused caller does next. What a server
can do
in one go is in `ports`; the explorer of the tests runs the same steps on ports in memory, in every order.
"""
