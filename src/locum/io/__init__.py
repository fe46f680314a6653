"""Files and folders that are written completely or not at all, the rules for paths, and text from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.io.atomic import (
        create_bytes as create_bytes,
        replace_in_folder as replace_in_folder,
        sync_folder as sync_folder,
        write_atomically as write_atomically,
        write_bytes as write_bytes,
        write_folder_atomically as write_folder_atomically,
        write_private_table as write_private_table,
    )
    from locum.io.figures import FORMATS as FORMATS, figure_file as figure_file
    from locum.io.locks import hold_folder as hold_folder
    from locum.io.paths import (
        LEDGER as LEDGER,
        MANIFEST as MANIFEST,
        STATE_FOLDER as STATE_FOLDER,
        array_files as array_files,
        beside_folder as beside_folder,
        check_input as check_input,
        check_manifest_folder as check_manifest_folder,
        check_output_file as check_output_file,
        check_output_folder as check_output_folder,
        ledger_path as ledger_path,
        lies_in_release as lies_in_release,
        make_state_folder as make_state_folder,
        parquet_files as parquet_files,
        private_folder as private_folder,
        split_path as split_path,
    )
    from locum.io.progress_bar import ProgressBar as ProgressBar, bar_html as bar_html
    from locum.io.reading import (
        check_regular as check_regular,
        read_regular as read_regular,
        read_toml as read_toml,
        reading_file as reading_file,
        regular_bytes as regular_bytes,
    )
    from locum.io.remote import (
        check_local as check_local,
        file_system as file_system,
        is_remote as is_remote,
        remote_errors as remote_errors,
    )
    from locum.io.safe_text import (
        markdown_list as markdown_list,
        markdown_sentence as markdown_sentence,
        markdown_text as markdown_text,
        one_line as one_line,
        printable as printable,
    )
    from locum.io.wording import did_you_mean as did_you_mean, listed as listed

__getattr__, __dir__, __all__ = lazy_exports(__name__)
