"""Built variants on their way to users: the Hub, cards, wheels, signatures, reproduction."""
