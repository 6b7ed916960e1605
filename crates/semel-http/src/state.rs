//! What all clones of a layer share, and the problems it answers with.

use std::{collections::HashMap, sync::Arc};

use http::{HeaderValue, Response, Version, header::CONNECTION};
use semel_core::Engine;

use crate::{
    ExtractPrincipal, Modes, RoutePolicy, RouteTemplate,
    authorize_replay::AuthorizeReplay,
    body::ResponseBody,
    budget::BufferBudget,
    coarse_timeout::CoarseTimeout,
    keyed_request::EchoedHeaders,
    observe::Observer,
    problem::{self, Problem, ProblemBase},
    unprotected::IgnoredKeys,
};

/// Everything that the clones of a layer share.
pub(crate) struct LayerState {
    pub(crate) namespace: String,
    pub(crate) principal: Arc<dyn ExtractPrincipal>,
    pub(crate) template: RouteTemplate,
    pub(crate) routes: HashMap<String, Arc<PreparedRoute>>,
    pub(crate) default: Arc<PreparedRoute>,
    pub(crate) modes: Modes,
    pub(crate) authorize: Option<AuthorizeReplay>,
    pub(crate) budget: BufferBudget,
    pub(crate) timeout: CoarseTimeout,
    pub(crate) problem_base: Arc<str>,
    pub(crate) observer: Observer,
    pub(crate) unprotected: IgnoredKeys,
}

/// A route's policy, and the engine that runs under it.
pub(crate) struct PreparedRoute {
    pub(crate) policy: RoutePolicy,
    pub(crate) engine: Engine,
}

impl LayerState {
    /// The problem base for answers of the extractor, if it is not the default.
    pub(crate) fn own_problem_base(&self) -> Option<ProblemBase> {
        let base = &self.problem_base;
        (&**base != problem::BASE).then(|| ProblemBase(base.clone()))
    }

    /// Answers with a problem.
    pub(crate) fn answer<B>(
        &self,
        problem: &Problem,
        echo: &EchoedHeaders,
    ) -> Response<ResponseBody<B>> {
        let mut response = problem.response(&self.problem_base).map(ResponseBody::own);
        echo.mark(response.headers_mut());
        response
    }

    /// Answers with a problem to a request whose body was not read to its end. An HTTP/1 connection must then
    /// not be used again: the rest of the body would be taken for the next request.
    pub(crate) fn refuse<B>(
        &self,
        problem: &Problem,
        echo: &EchoedHeaders,
        version: Version,
    ) -> Response<ResponseBody<B>> {
        let mut response = self.answer(problem, echo);
        if version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
