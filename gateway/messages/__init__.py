"""Messages of the wire: as they are stored, as they stream, and as they come in."""
