"""Headers that `depends` names: from a folder of the user, the store, a wheel, or git."""
