"""The commands of the palette, in an order of their own: what cannot be undone comes last."""

from __future__ import annotations

from textual.command import DiscoveryHit, Hits
from textual.system_commands import SystemCommandsProvider


class Commands(SystemCommandsProvider):
    """The app's commands as it gives them; Textual's own order is by name, which begins with A."""

    async def discover(self) -> Hits:
        """Yield every command before the user typed."""
        for command in self.app.get_system_commands(self.screen):
            if command.discover:
                yield DiscoveryHit(command.title, command.callback, help=command.help)
