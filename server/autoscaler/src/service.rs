//! The service: answers come from the caches, changes go to the API server.

use std::time::Duration;

use ostler_api::names::{annotation, taint};
use ostler_controllers::{NodeName, ScaleError, Scaler};
use ostler_lifecycle::autoscaler::group::Group;
use ostler_lifecycle::autoscaler::instance::{
    GroupFault, GroupInstance, GroupInstanceState, instances,
};
use ostler_lifecycle::autoscaler::options::Options;
use ostler_lifecycle::autoscaler::scale::{self, ScaleRefusal};
use prost_types::Duration as GoogleDuration;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::node;
use crate::wire::cloud_provider_server::{CloudProvider, CloudProviderServer};
use crate::wire::instance_status::InstanceState;
use crate::wire::{
    CleanupRequest, CleanupResponse, ExternalGrpcNode, FILE_DESCRIPTOR_SET,
    GetAvailableGpuTypesRequest, GetAvailableGpuTypesResponse, GpuLabelRequest, GpuLabelResponse,
    InstanceErrorInfo, InstanceStatus, KubernetesDuration, NodeGroup, NodeGroupAutoscalingOptions,
    NodeGroupAutoscalingOptionsRequest, NodeGroupAutoscalingOptionsResponse,
    NodeGroupDecreaseTargetSizeRequest, NodeGroupDecreaseTargetSizeResponse,
    NodeGroupDeleteNodesRequest, NodeGroupDeleteNodesResponse, NodeGroupForNodeRequest,
    NodeGroupForNodeResponse, NodeGroupIncreaseSizeRequest, NodeGroupIncreaseSizeResponse,
    NodeGroupNodesRequest, NodeGroupNodesResponse, NodeGroupTargetSizeRequest,
    NodeGroupTargetSizeResponse, NodeGroupTemplateNodeInfoRequest,
    NodeGroupTemplateNodeInfoResponse, NodeGroupsRequest, NodeGroupsResponse,
    PricingNodePriceRequest, PricingNodePriceResponse, PricingPodPriceRequest,
    PricingPodPriceResponse, RefreshRequest, RefreshResponse,
};

/// The label of Nodes with graphics cards, as Cluster API's provider has it.
const GPU_LABEL: &str = "cluster-api/accelerator";
/// Classes of errors, as the autoscaler numbers them.
const OUT_OF_RESOURCES: i32 = 1;
const OTHER: i32 = 99;

type Answer<T> = Result<Response<T>, Status>;

/// Answers an autoscaler.
#[derive(Debug, Clone)]
pub struct Autoscaler {
    scaler: Scaler,
}

impl Autoscaler {
    /// Answers from the caches of `scaler`.
    pub const fn new(scaler: Scaler) -> Self {
        Self { scaler }
    }

    /// The group with this id. Before the caches are complete, each would seem to be gone.
    fn group(&self, id: &str) -> Result<Group, Status> {
        self.synced()?;
        self.scaler.group(id).map_err(|refusal| refused(&refusal))
    }

    fn synced(&self) -> Result<(), Status> {
        let synced = self.scaler.is_synced();
        synced.then_some(()).ok_or_else(|| Status::unavailable("the core is still starting"))
    }
}

/// The service, health and reflection.
pub fn routes(scaler: Scaler) -> Routes {
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let reflection = match (described().build_v1(), described().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => Routes::new(v1).add_service(v1alpha),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "no reflection: the service has no readable description");
            Routes::default()
        }
    };
    let (reporter, health) = tonic_health::server::health_reporter();
    drop(reporter);
    reflection.add_service(health).add_service(CloudProviderServer::new(Autoscaler::new(scaler)))
}

fn refused(refusal: &ScaleRefusal) -> Status {
    let text = refusal.to_string();
    match refusal {
        ScaleRefusal::NoGroup(_) => Status::not_found(text),
        ScaleRefusal::Senseless(_) => Status::invalid_argument(text),
        ScaleRefusal::Impossible(_) => Status::failed_precondition(text),
    }
}

fn failed(error: &ScaleError) -> Status {
    match error {
        ScaleError::Refused(refusal) => refused(refusal),
        ScaleError::Api(why) => Status::unavailable(why.clone()),
    }
}

fn shown(group: &Group) -> Option<NodeGroup> {
    let limits = group.limits()?;
    Some(NodeGroup {
        id: group.id().to_string(),
        min_size: limits.min,
        max_size: limits.max,
        debug: format!("{} of {} to {}", group.replicas(), limits.min, limits.max),
    })
}

fn instance(of: GroupInstance) -> crate::wire::Instance {
    let state = match of.state {
        GroupInstanceState::Running => InstanceState::InstanceRunning,
        GroupInstanceState::Creating => InstanceState::InstanceCreating,
        GroupInstanceState::Deleting => InstanceState::InstanceDeleting,
    };
    let error_info =
        of.fault.map(|GroupFault { code, message, out_of_resources }| InstanceErrorInfo {
            error_code: code,
            error_message: message,
            instance_error_class: if out_of_resources { OUT_OF_RESOURCES } else { OTHER },
        });
    let status = InstanceStatus { instance_state: state.into(), error_info };
    crate::wire::Instance { id: of.id, status: Some(status) }
}

/// The group's options, and for the rest the caller's defaults: an autoscaler takes an absent option for 0. Each time
/// is given in both ways.
fn options(own: Options, given: NodeGroupAutoscalingOptions) -> NodeGroupAutoscalingOptions {
    let google = |it: Option<GoogleDuration>| it.and_then(|it| Duration::try_from(it).ok());
    let kubernetes = |it: Option<KubernetesDuration>| {
        it.and_then(|it| u64::try_from(it.duration).ok()).map(Duration::from_nanos)
    };
    let either = |new, old| google(new).or_else(|| kubernetes(old)).unwrap_or_default();
    let unneeded = either(given.scale_down_unneeded_duration, given.scale_down_unneeded_time);
    let unready = either(given.scale_down_unready_duration, given.scale_down_unready_time);
    let provision = either(given.max_node_provision_duration, given.max_node_provision_time);
    let times = [
        own.unneeded.unwrap_or(unneeded),
        own.unready.unwrap_or(unready),
        own.provision.unwrap_or(provision),
    ];
    let [unneeded, unready, provision] = times.map(|it| GoogleDuration::try_from(it).ok());
    let [old_unneeded, old_unready, old_provision] = times.map(|it| {
        let duration = i64::try_from(it.as_nanos()).unwrap_or(i64::MAX);
        Some(KubernetesDuration { duration })
    });
    NodeGroupAutoscalingOptions {
        scale_down_utilization_threshold: own
            .utilization
            .unwrap_or(given.scale_down_utilization_threshold),
        scale_down_gpu_utilization_threshold: own
            .gpu_utilization
            .unwrap_or(given.scale_down_gpu_utilization_threshold),
        scale_down_unneeded_time: old_unneeded,
        scale_down_unready_time: old_unready,
        max_node_provision_time: old_provision,
        zero_or_max_node_scaling: given.zero_or_max_node_scaling,
        ignore_daemon_sets_utilization: given.ignore_daemon_sets_utilization,
        scale_down_unneeded_duration: unneeded,
        scale_down_unready_duration: unready,
        max_node_provision_duration: provision,
    }
}

/// Whether the caller still sees a Node closed, like a Node in reserve. The call has no taints, but this annotation is
/// written with the taints. Counted in its group by now, the Node would be room that no pod can have, and the
/// autoscaler would ask for more.
fn is_seen_in_reserve(node: &ExternalGrpcNode) -> bool {
    let applied = node.annotations.get(annotation::LAST_APPLIED_NODE_TEMPLATE);
    applied.is_some_and(|applied| applied.contains(&format!("\"{}\"", taint::RESERVE)))
}

fn name_of(node: &ExternalGrpcNode) -> NodeName<'_> {
    NodeName { name: &node.name, provider_id: &node.provider_id }
}

#[tonic::async_trait]
impl CloudProvider for Autoscaler {
    async fn node_groups(&self, _: Request<NodeGroupsRequest>) -> Answer<NodeGroupsResponse> {
        self.synced()?;
        let node_groups = self.scaler.groups().iter().filter_map(shown).collect();
        Ok(Response::new(NodeGroupsResponse { node_groups }))
    }

    async fn node_group_for_node(
        &self,
        request: Request<NodeGroupForNodeRequest>,
    ) -> Answer<NodeGroupForNodeResponse> {
        self.synced()?;
        let node = request.into_inner().node.unwrap_or_default();
        let group = self.scaler.group_of(name_of(&node)).filter(|_| !is_seen_in_reserve(&node));
        let group = group.as_ref().and_then(shown).unwrap_or_default();
        Ok(Response::new(NodeGroupForNodeResponse { node_group: Some(group) }))
    }

    async fn node_group_target_size(
        &self,
        request: Request<NodeGroupTargetSizeRequest>,
    ) -> Answer<NodeGroupTargetSizeResponse> {
        let target_size = self.group(&request.into_inner().id)?.replicas();
        Ok(Response::new(NodeGroupTargetSizeResponse { target_size }))
    }

    async fn node_group_increase_size(
        &self,
        request: Request<NodeGroupIncreaseSizeRequest>,
    ) -> Answer<NodeGroupIncreaseSizeResponse> {
        self.synced()?;
        let NodeGroupIncreaseSizeRequest { delta, id } = request.into_inner();
        let changed =
            self.scaler.change(&id, |group, by| scale::increase(group, delta, by.now).map(Some));
        changed.await.map_err(|error| failed(&error))?;
        Ok(Response::new(NodeGroupIncreaseSizeResponse {}))
    }

    async fn node_group_delete_nodes(
        &self,
        request: Request<NodeGroupDeleteNodesRequest>,
    ) -> Answer<NodeGroupDeleteNodesResponse> {
        self.synced()?;
        let NodeGroupDeleteNodesRequest { nodes, id } = request.into_inner();
        let changed = self.scaler.change(&id, |group, by| {
            let named: Vec<_> = nodes.iter().map(|node| by.named(name_of(node))).collect();
            scale::delete(group, &by.members(group), &named, by.now)
        });
        changed.await.map_err(|error| failed(&error))?;
        Ok(Response::new(NodeGroupDeleteNodesResponse {}))
    }

    async fn node_group_decrease_target_size(
        &self,
        request: Request<NodeGroupDecreaseTargetSizeRequest>,
    ) -> Answer<NodeGroupDecreaseTargetSizeResponse> {
        self.synced()?;
        let NodeGroupDecreaseTargetSizeRequest { delta, id } = request.into_inner();
        let changed = self.scaler.change(&id, |group, by| {
            scale::decrease(group, &by.members(group), delta, by.now).map(Some)
        });
        changed.await.map_err(|error| failed(&error))?;
        Ok(Response::new(NodeGroupDecreaseTargetSizeResponse {}))
    }

    async fn node_group_nodes(
        &self,
        request: Request<NodeGroupNodesRequest>,
    ) -> Answer<NodeGroupNodesResponse> {
        let group = self.group(&request.into_inner().id)?;
        let all = instances(&group, &self.scaler.members(&group));
        let instances = all.into_iter().map(instance).collect();
        Ok(Response::new(NodeGroupNodesResponse { instances }))
    }

    async fn node_group_template_node_info(
        &self,
        request: Request<NodeGroupTemplateNodeInfoRequest>,
    ) -> Answer<NodeGroupTemplateNodeInfoResponse> {
        let group = self.group(&request.into_inner().id)?;
        let shape = self.scaler.shape(&group).ok_or_else(|| {
            let class = &group.template().class.name;
            let what = "nodeTemplate.capacity with cpu and memory";
            Status::unimplemented(format!("MachineClass {class} has no {what}"))
        })?;
        let bytes = node::bytes(shape.node(&format!("template-of-{}", group.id().name)));
        let (node_info, node_bytes) = (bytes.clone(), bytes);
        Ok(Response::new(NodeGroupTemplateNodeInfoResponse { node_info, node_bytes }))
    }

    async fn node_group_get_options(
        &self,
        request: Request<NodeGroupAutoscalingOptionsRequest>,
    ) -> Answer<NodeGroupAutoscalingOptionsResponse> {
        let NodeGroupAutoscalingOptionsRequest { id, defaults } = request.into_inner();
        let own = Options::of(&self.group(&id)?);
        let own = own.ok_or_else(|| Status::unimplemented("this group has the usual options"))?;
        let options = options(own, defaults.unwrap_or_default());
        Ok(Response::new(NodeGroupAutoscalingOptionsResponse {
            node_group_autoscaling_options: Some(options),
        }))
    }

    async fn refresh(&self, _: Request<RefreshRequest>) -> Answer<RefreshResponse> {
        self.synced()?;
        Ok(Response::new(RefreshResponse {}))
    }

    async fn cleanup(&self, _: Request<CleanupRequest>) -> Answer<CleanupResponse> {
        Ok(Response::new(CleanupResponse {}))
    }

    async fn gpu_label(&self, _: Request<GpuLabelRequest>) -> Answer<GpuLabelResponse> {
        Ok(Response::new(GpuLabelResponse { label: GPU_LABEL.to_owned() }))
    }

    async fn get_available_gpu_types(
        &self,
        _: Request<GetAvailableGpuTypesRequest>,
    ) -> Answer<GetAvailableGpuTypesResponse> {
        Ok(Response::new(GetAvailableGpuTypesResponse::default()))
    }

    async fn pricing_node_price(
        &self,
        _: Request<PricingNodePriceRequest>,
    ) -> Answer<PricingNodePriceResponse> {
        Err(Status::unimplemented("Nodes have no price here"))
    }

    async fn pricing_pod_price(
        &self,
        _: Request<PricingPodPriceRequest>,
    ) -> Answer<PricingPodPriceResponse> {
        Err(Status::unimplemented("pods have no price here"))
    }
}
