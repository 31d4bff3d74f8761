from services.context.app import run
from shared.config.service import run_service

if __name__ == "__main__":
    run_service("context", run)
