"""Where commands run: this machine, or a login host over ssh, behind one interface."""
