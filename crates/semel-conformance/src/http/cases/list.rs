//! The list of all cases: name, what it needs, the promise, and the peers that broke it.

/// Hands the list of all cases to another macro. The only place that names them.
#[doc(hidden)]
#[macro_export]
macro_rules! __for_each_case {
    ([$($then:tt)*] $with:tt) => {
        $($then)* ! { $with
            replay {
                the_first_answer_is_the_handlers
                    "The first caller gets the handler's own answer, with the key echoed."
                    []
                a_retry_is_replayed_byte_for_byte
                    "A retry gets the recorded status, headers and body, and is marked as a replay."
                    [
                        "express-idempotency: after a replay the next handler is called as well",
                        "IdempotentAPI: the reply is stored after it was sent, so a quick retry finds none",
                        "Powertools on Redis and Valkey: completion drops the payload hash, so an honest retry is rejected",
                    ]
                a_hundred_retries_are_one_answer
                    "All of many retries get the one outcome."
                    []
                an_empty_body_is_replayed
                    "An empty body is an outcome like any other."
                    ["node-idempotency Express: an empty stored body runs the handler again"]
                no_content_is_replayed
                    "A 204 is an outcome like any other."
                    ["node-idempotency Express: a falsy stored body runs the handler again"]
                a_binary_body_is_replayed
                    "Bytes stay bytes, for the first caller and for every replay."
                    ["hono: the reply is read as text, which spoils binary bodies even for the first caller"]
                a_redirect_is_replayed
                    "A redirect is the caller's to follow, and is replayed with its target."
                    ["concerns_on_rails: a replay has lost its Location"]
                trailers_are_replayed needs Trailers
                    "Trailers are part of the outcome."
                    []
                an_expired_key_runs_again
                    "After its retention a key runs again."
                    ["asgi-idempotency-header: used keys are never removed, so an expired reply means 409 for ever"]
            }
            headers {
                descriptive_headers_are_replayed
                    "What describes the body or points to what was made is replayed."
                    ["concerns_on_rails: a replay has lost its Location"]
                repeated_headers_are_replayed
                    "A header of several lines keeps all of them, in order."
                    ["axum-idempotent: of repeated headers only the last is kept"]
                commas_do_not_split_a_header
                    "A comma does not split a header."
                    ["Fiber: header values are split at commas on replay"]
                a_header_that_is_not_utf8_is_replayed
                    "A header value is replayed byte for byte."
                    ["axum-idempotent: a header that is not UTF-8 makes the replay fail, and the handler runs again"]
                cookies_are_for_the_first_caller
                    "Set-Cookie reaches only the first caller."
                    [
                        "Fiber: Set-Cookie is replayed",
                        "qonto: Set-Cookie is replayed",
                        "IdempotentAPI: Set-Cookie is replayed",
                        "Traefik plugin: Set-Cookie is replayed",
                        "idempotency4j: Set-Cookie is replayed by default",
                        "granit: Set-Cookie is replayed",
                    ]
                what_belongs_to_one_exchange_is_not_replayed
                    "Challenges, dates, hop-by-hop and CORS headers belong to one exchange."
                    ["granit: WWW-Authenticate is replayed"]
                a_handler_cannot_set_the_reserved_headers
                    "Reserved headers that a handler sends have no effect."
                    []
                reply_headers_are_exposed_to_browsers
                    "A script in a browser may read the echoed key and the marker."
                    []
            }
            keys {
                a_quoted_key_is_the_raw_key
                    "A key as a structured-field string is the same key as without quotes."
                    []
                a_key_may_have_255_characters
                    "Keys of up to 255 characters work."
                    []
                long_keys_differ_in_their_last_character
                    "No key is cut short."
                    []
                bad_keys_are_refused
                    "An invalid key is refused, and nothing runs."
                    []
                two_keys_are_refused
                    "A request has one key."
                    []
                keys_are_case_sensitive
                    "Upper and lower case are two keys."
                    ["qonto: keys are lower-cased, so A and a collide"]
                a_request_without_key_passes
                    "Without a key, on a route that requires none, a request passes unprotected."
                    []
                a_missing_key_is_refused_where_required
                    "A route that requires a key runs nothing without one."
                    []
                a_key_can_come_from_the_body
                    "A route may take its key from the body."
                    []
                the_header_wins_over_the_body
                    "A key in the header overrides one in the body."
                    []
            }
            scope {
                another_principal_has_its_own_outcome
                    "No caller gets the outcome of another principal."
                    [
                        "Fiber: keys have no principal",
                        "qonto: keys have no principal",
                        "IdempotentAPI: keys have no principal",
                        "idempotency4j: keys have no principal",
                        "hono: keys have no principal by default",
                        "Traefik plugin: keys have no principal",
                        "Kong udleinati: keys have no principal",
                        "node-idempotency: keys have no principal",
                    ]
                a_user_id_in_a_plain_header_is_not_trusted
                    "A header that any client can send is no principal."
                    ["idempotency-rs: an X-User-ID header is trusted"]
                equal_bodies_under_two_keys_both_run
                    "Two keys are two operations, though their bodies are equal."
                    ["idempot-js: a body that another key carried is answered with 409"]
                another_method_is_another_operation
                    "The same key with another method is another operation."
                    [
                        "idempotency4j: the method is not compared",
                        "idempot-js: the method is not compared",
                        "lakekeeper: a drop under a create's key is answered as done",
                    ]
                another_url_is_another_operation
                    "One key on two URLs never replays the answer of the other URL."
                    [
                        "ldclabs: the key leaves the URL out",
                        "idempotency4j: the path is not compared",
                        "idempot-js: the path is not compared",
                    ]
                every_write_method_is_protected
                    "PUT, PATCH and DELETE are protected like POST."
                    []
                safe_methods_pass
                    "GET and HEAD pass, with or without a key."
                    []
            }
            fingerprint {
                another_body_is_refused
                    "A used key with another body is refused."
                    ["Powertools on DynamoDB: a fast path skips the payload check of finished work"]
                no_body_is_another_body
                    "A used key without the body is refused."
                    ["IdempotentAPI: a body may be hashed as nothing"]
                another_path_parameter_is_refused
                    "The concrete path is compared, not only its template."
                    [
                        "titen: the route template hides path parameters",
                        "idempotency4j: the path is not compared",
                        "idempot-js: the path is not compared",
                    ]
                another_query_is_refused
                    "The query is compared."
                    ["IdempotentAPI: the query is never compared"]
                another_content_type_is_refused
                    "The content type is compared."
                    []
                another_content_encoding_is_refused
                    "The content encoding is compared: with another one, the same bytes mean something else."
                    []
                another_overridden_method_is_refused
                    "A header that overrides the method is compared."
                    []
                another_spelling_of_a_path_is_the_same_path
                    "An escaped letter equals the letter, and an escaped slash differs from a slash."
                    []
                chunked_bodies_are_compared
                    "A body is compared with and without a declared length."
                    ["IdempotentAPI: a body without Content-Length is not compared"]
                framing_does_not_matter
                    "The same bytes are the same request, in chunks or not."
                    []
                the_last_byte_counts
                    "A body is compared to its last byte."
                    ["IdempotentAPI: bodies of 30 kB and more are compared wrongly"]
                the_last_byte_counts_beyond_a_mebibyte
                    "A long body is compared to its last byte too."
                    ["IdempotencyGuard.NET: only the first megabyte is hashed"]
                a_mismatch_can_be_unprocessable
                    "A route may answer a mismatch with 422."
                    []
                canonical_json_has_one_spelling
                    "With canonical JSON, order, white space and left-out fields do not matter."
                    ["Powertools for Python: the order of fields makes another payload"]
                canonical_json_keeps_every_digit
                    "Canonical JSON keeps integers that a double cannot."
                    []
            }
            running {
                one_of_many_runs
                    "Of a hundred concurrent requests one runs, and all get its answer."
                    [
                        "axum-idempotent: no claim, so concurrent duplicates all run",
                        "hwhkit: no claim, so concurrent duplicates all run",
                        "qonto: the record is not read again under the lock",
                        "express-idempotency: find, then create, is a race",
                    ]
                a_duplicate_that_may_not_wait_gets_retry_after
                    "A duplicate that may not wait gets 409 and Retry-After."
                    []
                another_body_is_refused_at_once
                    "A mismatch does not wait for the run."
                    []
                refusals_do_not_change_the_record
                    "A problem never replaces a recorded outcome."
                    ["node-idempotency Fastify: its own 409 and 422 overwrite the record"]
                a_hang_up_does_not_end_the_work
                    "Work continues when its caller disconnects, and the retry gets its outcome."
                    ["IdempotencyGuard.NET: a disconnect releases the claim after the effect, and the retry runs again"]
                waiters_outlast_the_first_caller
                    "Waiters get the outcome even if the first caller disconnects."
                    []
                many_keys_at_once_do_not_mix
                    "Every key has its own outcome when many run concurrently."
                    []
                waiters_share_a_failure
                    "Waiters of a failed run get its answer and do not run."
                    []
            }
            verdicts {
                client_errors_are_recorded
                    "A client error is an outcome."
                    []
                server_errors_run_again
                    "A server error is no outcome: a retry runs."
                    ["ldclabs: an upstream error leaves the key locked for its whole lifetime"]
                a_server_error_keeps_the_key_for_its_request
                    "A failed run may have had an effect, so its key refuses other requests."
                    []
                answers_without_effect_free_the_key
                    "401, 403, 425 and 429 had no effect: any request may use the key."
                    []
                a_problem_of_an_inner_layer_is_not_recorded
                    "A problem of an inner layer is no outcome."
                    []
                a_problem_name_is_ignored_on_another_status
                    "Semel-Status with an unknown name, or on another status, is no problem of an inner layer."
                    []
                server_errors_can_be_final
                    "A route may make server errors final."
                    []
                server_errors_on_hold_are_final
                    "On a hold route, a server error is final."
                    []
            }
            lost {
                a_panic_is_answered_and_runs_again
                    "A panic is answered, and its key is free again after the backoff."
                    ["asgi-idempotency-header: an exception keeps the key for ever"]
                a_panic_on_hold_stays_unknown
                    "On a hold route, an operator has to resolve a panic."
                    []
                a_timeout_on_hold_stays_unknown
                    "On a hold route, an operator has to resolve a timeout."
                    []
                attempts_end_at_the_cap
                    "A key does not run after its last attempt."
                    []
                an_erased_key_is_gone needs Erase
                    "An erased outcome is gone, and its key does not run again."
                    []
            }
            streams {
                a_stream_passes_while_it_runs
                    "An event passes when it is sent, not when the stream ends."
                    []
                a_stream_is_recorded_without_its_body
                    "A stream that ended is not run again."
                    ["node-idempotency Nest: a streamed reply leaves its key in progress"]
                a_hang_up_does_not_end_a_stream
                    "A stream continues to its end when its caller disconnects."
                    []
                a_broken_stream_is_not_recorded
                    "A stream that broke off is no success."
                    []
                a_broken_body_is_not_recorded
                    "A body that broke off is no success."
                    []
                a_broken_stream_on_hold_is_unknown
                    "On a hold route, an operator has to resolve a stream that broke off."
                    []
            }
            limits {
                an_oversize_request_is_refused
                    "A body too big to compare is refused and never passes unprotected."
                    ["Traefik plugin: a body over 1 MB bypasses the check silently"]
                a_refusal_reaches_a_caller_that_is_still_sending
                    "A refusal reaches a caller that is still sending."
                    []
                an_endless_body_is_refused
                    "A request with an endless body is refused and does not run."
                    []
                a_request_at_the_limit_is_served
                    "A body of exactly the limit is within it."
                    []
                an_oversize_answer_never_runs_again
                    "An answer too big to keep passes whole, and a retry does not run."
                    ["IdempotencyGuard.NET: a reply over 1 MB releases the claim after the effect"]
                an_answer_over_a_mebibyte_never_runs_again
                    "An answer over the default limit passes whole, and a retry does not run."
                    ["IdempotencyGuard.NET: a reply over 1 MB releases the claim after the effect"]
            }
            modes {
                observe_mode_changes_nothing
                    "Observe mode changes no request and no answer."
                    []
                observe_mode_delays_no_request
                    "A duplicate on an observed route runs at once."
                    []
                off_mode_changes_nothing
                    "Mode off changes no request and no answer."
                    []
            }
            store {
                nothing_runs_without_the_store needs BreakStore
                    "While the store is down, no protected request runs."
                    [
                        "axum-idempotent: store errors mean run anyway",
                        "hwhkit: store errors mean run anyway",
                        "Traefik plugin: fails open by default",
                    ]
                an_answer_that_could_not_be_recorded_is_still_sent needs BreakStore
                    "An answer that could not be recorded is sent with a marker, and recorded later."
                    ["Fiber: a storage error after the handler is returned though the effect ran"]
                unprotected_requests_need_no_store needs BreakStore
                    "Unprotected and observed requests do not need the store."
                    []
            }
            problems {
                refusals_tell_clients_what_to_do
                    "Every refusal says what is wrong and whether a retry helps, as SDKs read it."
                    [
                        "stripe-go: an answer without an error object is retried whatever its status",
                        "stripe-python and stripe-node: a 409 is retried unless Stripe-Should-Retry says false",
                    ]
                refusals_can_be_read_by_browsers
                    "A script in a browser may read the headers of a refusal."
                    []
            }
            request {
                the_handler_gets_the_request_as_sent
                    "The handler gets method, target, headers and body as they were sent."
                    []
                request_trailers_reach_the_handler needs Trailers
                    "The handler gets the trailers of the request."
                    []
                half_a_request_does_not_run
                    "A request that breaks off does not run, and leaves its key free."
                    []
                a_marker_in_the_request_changes_nothing
                    "No request header makes a replay."
                    ["express-idempotency: the x-hit marker could be set by the client"]
            }
        }
    };
}
