"""How the parties reach each other: Flower, and nothing else imports it below the apps."""
