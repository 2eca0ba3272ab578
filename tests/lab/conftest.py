"""Ray reads some of its settings when it is imported, which the first test that needs it does."""

import os
import secrets

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # stay on the loopback interface
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # else Ray leaves one in the home folder
