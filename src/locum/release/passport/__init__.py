"""The passport of a release: its schema, files, threat model, decision, signature and exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.release.passport.decision import (
        FIVE_SAFES as FIVE_SAFES,
        Decision as Decision,
        check_decision as check_decision,
        make_decision as make_decision,
        parse_decision as parse_decision,
        read_decision as read_decision,
    )
    from locum.release.passport.exports import (
        render_croissant as render_croissant,
        render_registry as render_registry,
    )
    from locum.release.passport.files import (
        PassportFiles as PassportFiles,
        present_passport_files as present_passport_files,
        read_passport_files as read_passport_files,
        write_passport_files as write_passport_files,
    )
    from locum.release.passport.schema import (
        CROISSANT as CROISSANT,
        PAGE as PAGE,
        PASSPORT as PASSPORT,
        REGISTRY as REGISTRY,
        SHEET as SHEET,
        AttackEntry as AttackEntry,
        AuditEntry as AuditEntry,
        DecisionEntry as DecisionEntry,
        EpsilonAuditEntry as EpsilonAuditEntry,
        Passport as Passport,
        PolicyEntry as PolicyEntry,
        RuleEntry as RuleEntry,
        UtilityEntry as UtilityEntry,
        build_passport as build_passport,
        parse_passport as parse_passport,
    )
    from locum.release.passport.signature import (
        SIGNATURE as SIGNATURE,
        Signature as Signature,
        check_signature as check_signature,
        key_id as key_id,
        make_keys as make_keys,
        make_signature as make_signature,
        read_private_key as read_private_key,
        read_public_key as read_public_key,
        write_public_key as write_public_key,
    )

__getattr__, __dir__, __all__ = lazy_exports(__name__)
