//! The requests that are answered and not stored: who am I, may I, is this token good, give me one.

use k8s_openapi::api::{
    authentication::v1::{
        SelfSubjectReview, SelfSubjectReviewStatus, TokenReview, TokenReviewStatus, UserInfo,
    },
    authorization::v1::{
        FieldSelectorAttributes, NonResourceAttributes, NonResourceRule, ResourceAttributes,
        ResourceRule, SelfSubjectAccessReview, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec,
        SubjectAccessReviewStatus, SubjectRulesReviewStatus,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::kinds::{
    access::remove,
    field::FieldError,
    identity::Identity,
    selector::{FieldSelector, FieldTerm},
    status::{Answer, Status},
};

use super::{Attributes, Auth, Target, authorize};

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// A review request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    Token,
    SelfSubject,
    SelfSubjectAccess,
    SelfSubjectRules,
    TokenRequest { namespace: String, name: String },
}

impl Review {
    /// The review that a request asks for, whatever its method.
    pub(crate) fn of(attributes: &Attributes) -> Option<Self> {
        let Target::Resource { group, resource, subresource, namespace, name } = &attributes.target
        else {
            return None;
        };
        match (group.as_str(), resource.as_str(), subresource.as_str(), name.as_str()) {
            ("", "serviceaccounts", "token", _) if !namespace.is_empty() => {
                Some(Self::TokenRequest { namespace: namespace.clone(), name: name.clone() })
            }
            (AUTHENTICATION, "tokenreviews", "", "") => Some(Self::Token),
            (AUTHENTICATION, "selfsubjectreviews", "", "") => Some(Self::SelfSubject),
            (AUTHORIZATION, "selfsubjectaccessreviews", "", "") => Some(Self::SelfSubjectAccess),
            (AUTHORIZATION, "selfsubjectrulesreviews", "", "") => Some(Self::SelfSubjectRules),
            _ => None,
        }
    }

    /// Answers the review; the answer goes out as 201.
    pub(crate) fn answer(self, auth: &Auth, identity: &Identity, mut body: Value) -> Answer<Value> {
        // The answer is the server's. In binary form it is always sent, without values.
        remove(&mut body, "status");
        match self {
            Self::Token => auth.review_token(decode(body)?),
            Self::SelfSubject => who_am_i(auth, identity, decode(body)?),
            Self::SelfSubjectAccess => auth.may_i(identity, decode(body)?),
            Self::SelfSubjectRules => what_may_i(identity, decode(body)?),
            Self::TokenRequest { namespace, name } => auth.issue(&namespace, &name, decode(body)?),
        }
    }
}

fn decode<T: DeserializeOwned>(body: Value) -> Answer<T> {
    serde_json::from_value(body).map_err(|error| Status::bad_request(error.to_string()))
}

fn encode(review: &impl Serialize) -> Answer<Value> {
    serde_json::to_value(review).map_err(|error| Status::internal(error.to_string()))
}

impl Auth {
    fn review_token(&self, mut review: TokenReview) -> Answer<Value> {
        let token = review.spec.token.as_deref().unwrap_or_default();
        if token.is_empty() {
            return Err(Status::bad_request("token is required for TokenReview in authentication"));
        }
        let asked = review.spec.audiences.clone().filter(|audiences| !audiences.is_empty());
        let audiences = asked.unwrap_or_else(Self::own_audience);
        review.status = Some(match self.token(token, &audiences) {
            Some((identity, audiences)) => TokenReviewStatus {
                authenticated: Some(true),
                user: Some(identity.user_info()),
                audiences: Some(audiences),
                error: None,
            },
            None => TokenReviewStatus {
                error: Some("invalid bearer token".to_owned()),
                user: Some(UserInfo::default()),
                ..TokenReviewStatus::default()
            },
        });
        encode(&review)
    }
}

fn who_am_i(auth: &Auth, identity: &Identity, mut review: SelfSubjectReview) -> Answer<Value> {
    review.metadata.creation_timestamp = Some((auth.context.clock)().into());
    review.status = Some(SelfSubjectReviewStatus { user_info: Some(identity.user_info()) });
    encode(&review)
}

impl Auth {
    fn may_i(&self, identity: &Identity, mut review: SelfSubjectAccessReview) -> Answer<Value> {
        let spec = &review.spec;
        let attributes =
            attributes(spec.resource_attributes.as_ref(), spec.non_resource_attributes.as_ref())?;
        let allowed = self.permits(identity, &attributes);
        review.status = Some(SubjectAccessReviewStatus { allowed, ..Default::default() });
        encode(&review)
    }
}

fn what_may_i(identity: &Identity, mut review: SelfSubjectRulesReview) -> Answer<Value> {
    if review.spec.namespace.as_deref().unwrap_or_default().is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    // Kubernetes does not repeat the question.
    review.spec = SelfSubjectRulesReviewSpec::default();
    let any = || vec!["*".to_owned()];
    let texts = |all: &str| all.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let rule = |groups, resources, verbs| ResourceRule {
        api_groups: Some(groups),
        resources: Some(resources),
        verbs,
        resource_names: None,
    };
    let (resource_rules, non_resource_rules) = if identity.is_master() {
        let paths = NonResourceRule { non_resource_urls: Some(any()), verbs: any() };
        (vec![rule(any(), any(), any())], vec![paths])
    } else {
        let access = texts("selfsubjectaccessreviews selfsubjectrulesreviews");
        let paths = "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz \
                     /version /version/";
        let paths = NonResourceRule { non_resource_urls: Some(texts(paths)), verbs: texts("get") };
        let mut resources = vec![
            rule(texts(AUTHORIZATION), access, texts("create")),
            rule(texts(AUTHENTICATION), texts("selfsubjectreviews"), texts("create")),
        ];
        resources.extend(authorize::rules(identity).map(|one| {
            rule(texts(one.group), vec![one.resource_name()], texts(&one.verbs.join(" ")))
        }));
        (resources, vec![paths])
    };
    // whether a rule holds for a node depends on the object, which no list of rules can say
    let by_object = identity.node().is_some() && !identity.is_master();
    let why = "the rules of nodes hold for objects that concern the node";
    review.status = Some(SubjectRulesReviewStatus {
        evaluation_error: by_object.then(|| why.to_owned()),
        incomplete: by_object,
        non_resource_rules,
        resource_rules,
    });
    encode(&review)
}

/// The attributes that a review asks about, exactly one of the two kinds.
fn attributes(
    resource: Option<&ResourceAttributes>,
    path: Option<&NonResourceAttributes>,
) -> Answer<Attributes> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    match (resource, path) {
        (Some(resource), None) => Ok(Attributes {
            verb: text(&resource.verb),
            target: Target::Resource {
                group: text(&resource.group),
                resource: text(&resource.resource),
                subresource: text(&resource.subresource),
                namespace: text(&resource.namespace),
                name: text(&resource.name),
            },
            fields: fields(resource.field_selector.as_ref()),
        }
        .with_selected_name()),
        (None, Some(path)) => Ok(Attributes {
            verb: text(&path.verb),
            target: Target::Path(text(&path.path)),
            fields: FieldSelector::default(),
        }),
        (None, None) => {
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            Err(invalid(&[FieldError::invalid("spec.resourceAttributes", &Value::Null, why)]))
        }
        (Some(_), Some(path)) => {
            let shown = encode(path)?;
            let why = "cannot be specified in combination with resourceAttributes";
            Err(invalid(&[FieldError::invalid("spec.nonResourceAttributes", &shown, why)]))
        }
    }
}

/// The selector of a review; what it says by sets counts where a set has one value.
fn fields(selector: Option<&FieldSelectorAttributes>) -> FieldSelector {
    let Some(selector) = selector else { return FieldSelector::default() };
    if let Some(raw) = &selector.raw_selector {
        return raw.parse().unwrap_or_default();
    }
    let requirements = selector.requirements.iter().flatten();
    let terms = requirements.filter_map(|one| {
        let [value] = one.values.as_deref()? else { return None };
        let (label, value) = (one.key.as_str().into(), value.as_str().into());
        (one.operator == "In").then_some(FieldTerm { label, value, negated: false })
    });
    terms.collect()
}

/// Kubernetes names no kind here.
fn invalid(errors: &[FieldError]) -> Box<Status> {
    Status::invalid_kind(AUTHORIZATION, "", "", errors)
}
