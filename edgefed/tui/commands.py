"""The commands of the palette, in an order of their own: irreversible ones come last."""

from __future__ import annotations

from textual.command import DiscoveryHit, Hits
from textual.system_commands import SystemCommandsProvider


class Commands(SystemCommandsProvider):
    """The app's commands in its own order; Textual's is by name."""

    async def discover(self) -> Hits:
        """Yield every command before the user types."""
        for command in self.app.get_system_commands(self.screen):
            if command.discover:
                yield DiscoveryHit(command.title, command.callback, help=command.help)
