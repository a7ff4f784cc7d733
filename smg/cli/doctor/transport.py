"""Compares what an address says with what answers there: TLS or not, gRPC or HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smg.cli.doctor.findings import Finding, ok, problem
from smg.cli.doctor.wire import Speech, certificate_fault, speech_of

if TYPE_CHECKING:
    from smg.cli.doctor.wire import Target

_SILENT = "look at its logs: it hangs, or it is none of the servers that belong here"


async def grpc_transport(target: Target) -> Finding:
    """Whether a gRPC server answers, with TLS as the address says."""
    speech = await speech_of(target, is_http1=False)
    if target.is_tls:
        return await _tls(target, speech, "grpc")
    match speech:
        case Speech.HTTP2:
            return ok("transport", "HTTP/2 without TLS")
        case Speech.TLS:
            return problem(
                "transport",
                "it speaks TLS, and the address says that it does not",
                f"use grpcs://{target.authority}",
            )
        case Speech.HTTP1:
            return problem(
                "transport",
                "an HTTP/1 server answers there, no gRPC server",
                "give the port of its gRPC server; SGLang starts one with --grpc-mode. "
                f"If it is a gateway: smg doctor http://{target.authority}",
            )
        case Speech.NOTHING:
            return problem("transport", "it takes connections and says nothing", _SILENT)
        case Speech.OTHER:
            return problem(
                "transport", "what answers there is no gRPC server", "give the port of the gRPC server"
            )


async def http_transport(target: Target) -> Finding:
    """Whether an HTTP server answers, with TLS as the address says."""
    speech = await speech_of(target, is_http1=True)
    if target.is_tls:
        return await _tls(target, speech, "http")
    match speech:
        case Speech.HTTP1:
            return ok("transport", "HTTP/1 without TLS")
        case Speech.HTTP2:
            return problem(
                "transport",
                "a gRPC server answers there, no HTTP/1 server",
                f"look at it as such: smg doctor grpc://{target.authority}; or give the gateway's HTTP port, "
                "the one before its gRPC port unless told otherwise",
            )
        case Speech.TLS:
            return problem(
                "transport",
                "it speaks TLS, and the address says that it does not",
                f"use https://{target.authority}",
            )
        case Speech.NOTHING:
            return problem("transport", "it takes connections and says nothing", _SILENT)
        case Speech.OTHER:
            return problem(
                "transport", "what answers there is no HTTP server", "give the gateway's HTTP port"
            )


async def _tls(target: Target, speech: Speech, scheme: str) -> Finding:
    if speech in (Speech.HTTP1, Speech.HTTP2, Speech.OTHER):
        return problem(
            "transport",
            "it does not speak TLS, and the address says that it does",
            f"use {scheme}://{target.authority}, or give the server a certificate",
        )
    if speech is Speech.NOTHING:
        return problem("transport", "it takes connections and says nothing", _SILENT)
    fault = await certificate_fault(target)
    if fault:
        return problem(
            "transport",
            f"its certificate is not trusted: {fault}",
            "give the certificate of its issuer with --ca-cert FILE; the name in the address must be one of those "
            "in its certificate",
        )
    return ok("transport", "TLS with a certificate that is trusted")
