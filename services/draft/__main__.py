from services.draft.app import main
from shared.config.service import run_service

if __name__ == "__main__":
    run_service("draft", main)
