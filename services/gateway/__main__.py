"""`python -m services.gateway --config ringline.toml`"""

from services.gateway.app import main
from shared.config.service import run_service

if __name__ == "__main__":
    run_service("gateway", main)
