"""Releases: written atomically, checked before use, sampled without the code that made them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.release.archive import (
        Archive as Archive,
        pack_release as pack_release,
        put_release as put_release,
        read_archive as read_archive,
        release_files as release_files,
        unpack_release as unpack_release,
    )
    from locum.release.build import (
        Joint as Joint,
        build_release as build_release,
        rounded_joint as rounded_joint,
    )
    from locum.release.decoders import (
        cell_of as cell_of,
        check_values as check_values,
        decode_given as decode_given,
        part_prefix as part_prefix,
        part_tensors as part_tensors,
        run_program as run_program,
        trace_program as trace_program,
    )
    from locum.release.folder import (
        CARD as CARD,
        entry_of as entry_of,
        parse_tensors as parse_tensors,
        read_checked_folder as read_checked_folder,
        read_folder as read_folder,
        transcript_hash as transcript_hash,
    )
    from locum.release.hub import (
        HubPlace as HubPlace,
        hub_files as hub_files,
        hub_place as hub_place,
        push_files as push_files,
    )
    from locum.release.loading import load as load
    from locum.release.manifest import (
        MAX_MANIFEST_BYTES as MAX_MANIFEST_BYTES,
        MOST_NAMES as MOST_NAMES,
        SPACES as SPACES,
        Activation as Activation,
        Condition as Condition,
        Document as Document,
        EmbeddingEntry as EmbeddingEntry,
        FileEntry as FileEntry,
        FileName as FileName,
        GaussianSpec as GaussianSpec,
        HeadSpec as HeadSpec,
        Label as Label,
        Linear as Linear,
        Manifest as Manifest,
        MixturePart as MixturePart,
        MixtureSpec as MixtureSpec,
        NetworkSpec as NetworkSpec,
        Residual as Residual,
        RowsSpec as RowsSpec,
        ShortText as ShortText,
        SimpleOp as SimpleOp,
        StatisticsSpec as StatisticsSpec,
        Strict as Strict,
        first_fault as first_fault,
        parse_document as parse_document,
        parse_manifest as parse_manifest,
        to_space as to_space,
    )
    from locum.release.onnx_graph import (
        OnnxGraph as OnnxGraph,
        decoder_to_onnx as decoder_to_onnx,
        noise_width as noise_width,
        onnx_facts as onnx_facts,
    )
    from locum.release.release import Release as Release
    from locum.release.stream import WorkerSeeds as WorkerSeeds
    from locum.release.verification import (
        OpenedRelease as OpenedRelease,
        Verification as Verification,
        audit_refuses as audit_refuses,
        audit_sentence as audit_sentence,
        decision_sentence as decision_sentence,
        holder_refuses as holder_refuses,
        open_release as open_release,
        verify as verify,
        verify_opened as verify_opened,
    )

__getattr__, __dir__, __all__ = lazy_exports(__name__)
