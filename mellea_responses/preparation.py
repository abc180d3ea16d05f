"""From a request to the turn that a program is given: what it stands on, and who will answer it."""

import msgspec

from mellea_responses import history
from mellea_responses.compaction import Compactor, as_compaction
from mellea_responses.conversations import Conversations, conversation_id
from mellea_responses.errors import ApiError, ContextLengthExceeded, InvalidRequest
from mellea_responses.live import LiveCalls
from mellea_responses.media.parts import check_media
from mellea_responses.media.reader import Reader
from mellea_responses.normalize.request import normalize
from mellea_responses.program import Program, Silent
from mellea_responses.seal import Sealer
from mellea_responses.settings import Settings
from mellea_responses.store import Store
from mellea_responses.stored import Stored
from mellea_responses.turn import Facts, Turn
from mellea_responses.unsealing import open_compactions, open_reasoning
from mellea_responses.wire.items import Item, Reasoning
from mellea_responses.wire.request import CreateResponse


class Preparation:
    """Everything before the headers, while a failure can still be a plain error.

    Args:
        program: What answers.
        settings: Every option.
        store: Finished responses, and `stored`, which knows those being made too.
        conversations: Conversations.
        live: Calls whose outputs may come without their past.
        reader: What reads pictures and files.
        sealer: Opens what was sealed.
    """

    def __init__(
        self,
        program: Program,
        settings: Settings,
        *,
        store: Store,
        stored: Stored,
        conversations: Conversations,
        live: LiveCalls,
        reader: Reader,
        sealer: Sealer,
    ) -> None:
        self._program, self._settings = program, settings
        self._store, self._stored, self._conversations = store, stored, conversations
        self._live, self._reader, self._sealer = live, reader, sealer

    async def turn(self, request: CreateResponse, owner: str, local: history.Local | None = None) -> Turn:
        """The request in canonical form with everything it stands on.

        Raises:
            ApiError: something in it is wrong, or what it stands on is not there.
        """
        if request.background and not stores(request, self._settings):
            raise InvalidRequest("A background response must be stored: it needs store: true.", param="background")
        normalized = normalize(request, reject_unsupported=self._settings.unsupported_tools == "reject")
        given = normalized.loose
        check_media(given, remote=self._settings.allow_remote_images)
        if any(isinstance(item, Reasoning) for item in normalized.loose):
            loose = open_reasoning(normalized.loose, self._sealer, owner, strict=self._settings.strict_replay)
            normalized = msgspec.structs.replace(normalized, loose=loose)
        past = await self._past(request, owner, local)
        turn = await history.complete(
            normalized, owner, past, self._store, lambda item_id: self._find_item(owner, item_id), self._live
        )
        opened = open_compactions(turn.history + turn.input, self._sealer, owner)
        turn = msgspec.structs.replace(turn, opened=opened) if opened else turn
        media = await self._reader.read(turn, given, owner)
        return msgspec.structs.replace(turn, media=media) if media else turn

    async def _past(self, request: CreateResponse, owner: str, local: history.Local | None) -> history.Past:
        if request.previous_response_id is not None:
            run = self._stored.live_run(owner, request.previous_response_id)
            if run is not None:
                raise history.not_continued(run.id, run.response.status)
            return await history.chain(request.previous_response_id, owner, self._store, local)
        if request.conversation is None:
            return history.Past()
        conversation = await self._conversations.load(owner, conversation_id(request.conversation))
        return history.Past(conversation.items, conversation.leaf, conversation.id)

    async def _find_item(self, owner: str, item_id: str) -> Item | None:
        found = await self._store.find_item(owner, item_id)
        return found if found is not None else await self._conversations.find_item(owner, item_id)

    async def plan(self, turn: Turn, owner: str) -> tuple[Turn, Program]:
        """What will really answer: the program, a compaction, both, or nobody.

        Raises:
            ApiError: the program cannot answer this turn.
        """
        if turn.request.generate is False:
            return turn, Silent()
        if turn.compact:
            return as_compaction(turn), Compactor(self._program, self._sealer)
        threshold = next((c.compact_threshold for c in turn.request.context_management or ()), None)
        try:
            # With a threshold all of it counts, also what would be cut off.
            facts = await self.check(turn if threshold is None else _untruncated(turn), owner)
        except ContextLengthExceeded:
            if threshold is None:
                raise
            return turn, Compactor(self._program, self._sealer, then_answer=True)
        tokens = facts.input_tokens if facts else None
        if turn.options.logprobs and not (facts and facts.logprobs):
            raise InvalidRequest("This program gives no log probabilities.", param="include", code="no_logprobs")
        if threshold is not None and tokens is not None and tokens > threshold:
            return turn, Compactor(self._program, self._sealer, then_answer=True)
        if tokens is None and turn.request.truncation == "auto":
            turn = _untruncated(turn)  # nobody can count: say what holds
        return turn, self._program

    async def check(self, turn: Turn, owner: str) -> Facts | None:
        """What the program tells of a turn before it runs.

        Raises:
            ApiError: it cannot be answered.
        """
        try:
            return await self._program.check(turn, owner)
        except ApiError:
            raise
        except Exception as exc:
            raise ApiError("The program failed while it checked the request.") from exc


def _untruncated(turn: Turn) -> Turn:
    return msgspec.structs.replace(turn, request=msgspec.structs.replace(turn.request, truncation="disabled"))


def stores(request: CreateResponse, settings: Settings) -> bool:
    """Whether this request's response will be stored."""
    return request.store is not False and settings.response_ttl > 0
