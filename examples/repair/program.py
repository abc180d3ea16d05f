"""Requirements and repair: an answer that breaks a requirement goes back to the model with what is wrong about it.

The model here is a script, so that the example runs anywhere: its first answer is too long, its second is not. With
`TransformersBackend()` from `mellea_responses.backends.transformers` in its place it is the embedded model.

Serve it with `mellea-responses serve examples/repair/program.py`.
"""

from mellea import MelleaSession
from mellea.backends.dummy import DummyBackend
from mellea.core import GenerateLog
from mellea.stdlib.requirements import req, simple_validate
from mellea.stdlib.sampling import RepairTemplateStrategy

ANSWERS = ["It is my great pleasure to wish all of you a very good morning!", "Good morning!"]
SHORT = req(
    "Use at most five words.",
    validation_fn=simple_validate(lambda text: len(text.split()) <= 5, reason="More than five words."),
)


class Script(DummyBackend):
    """Mellea's backend that says what it is told to, with the log entry that repair looks for."""

    async def _generate_from_context(self, action, ctx, **options):
        thunk, ctx = await super()._generate_from_context(action, ctx, **options)
        thunk._generate_log = GenerateLog()
        return thunk, ctx


def serve(input, requirements=None, model_options=None):
    session = MelleaSession(Script(ANSWERS))
    result = session.instruct(
        input[-1].content,
        requirements=[SHORT, *(requirements or [])],
        strategy=RepairTemplateStrategy(loop_budget=3),
        return_sampling_results=True,
        model_options=model_options,
    )
    print(f"attempts: {len(result.sample_generations)}, all requirements kept: {result.success}")
    return result
