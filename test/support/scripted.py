"""A program file for servers in a process of their own: the stand-in, with its script from the environment."""

import json
import os

from support.stand_in import StandIn

stand_in = StandIn(json.loads(os.environ["STAND_IN_SCRIPT"]), os.environ["STAND_IN_SHAPE"])  # type: ignore[arg-type]  # one of Shape
serve = stand_in.serve
