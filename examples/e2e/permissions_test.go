// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/meshcni/meshcni/examples/e2e/chart"
	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/product"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// need is what a permission is for: what does not work without it.
type need struct {
	name, permission string
	// missing shows that something does not work in a cluster without the permission.
	missing func(p *permissions)
}

// feature makes the chart request permissions.
type feature struct {
	name   string
	values scenario.Values
	// foreign marks objects of kinds that this cluster lacks: the roles are changed, but nothing is
	// installed.
	foreign bool
	// unready says that no daemon gets ready without one of the permissions.
	unready bool
	// before puts the cluster into the state for the values, prepare sets up the proof of the
	// needs, and after shows that all works with all permissions; nil for nothing.
	before, prepare, after func(p *permissions)
	// needs are in the order in which they are shown; the last one may leave a broken cluster.
	needs []need
}

// features returns those of the chart, with the purpose of each permission.
func features() []feature {
	const role, cluster = "Role istio-cni: ", "ClusterRole istio-cni: "
	const hook, daemon = "Role istio-cni-uninstall: ", "DaemonSet istio-cni-node: capability "
	const use, own = "use security.openshift.io/securitycontextconstraints istio-cni", "apps/daemonsets istio-cni-node"
	return []feature{
		{name: "Chart", needs: []need{
			{"List", cluster + "list pods", (*permissions).noPodsListed},
			{"Watch", cluster + "watch pods", (*permissions).noPodsKnown},
			{"HookDeletes", hook + "delete " + own, (*permissions).hookFails},
			{"ListInstalled", role + "list configmaps istio-cni-installed", (*permissions).endNotListed},
			{"WatchInstalled", role + "watch configmaps istio-cni-installed", (*permissions).endNotWatched},
			{"GetNamespace", role + "get namespaces istio-system", (*permissions).namespaceUnknown},
			{"GetDaemonSet", role + "get " + own, (*permissions).pluginStays},
		}},
		{name: "WithoutAgent", values: withoutAgent(), needs: []need{
			{"Get", cluster + "get pods", (*permissions).noPodStarts},
			{"HookGets", hook + "get " + own, (*permissions).hookFails},
		}},
		{
			name: "NodeSelector", values: scenario.Values{"nodeSelector": scenario.Values{selected: "yes"}}, before: (*permissions).selectNodes,
			needs: []need{{"GetNode", cluster + "get nodes", (*permissions).nodeStays}},
		},
		{name: "Repair", values: repairs(), needs: []need{
			{"CreateEvent", cluster + "create events", (*permissions).cannotWriteEvents},
			{"Label", cluster + "patch pods/status", notDone("label")},
			{"Delete", cluster + "delete pods", notDone("delete")},
			{"Evict", cluster + "create pods/eviction", notDone("evict")},
			{"GetNode", cluster + "get nodes", taintStays("get")},
			{"PatchNode", cluster + "patch nodes", taintStays("patch")},
		}},
		{
			name: "Capabilities", values: capabilities(), prepare: (*permissions).startPatient, after: (*permissions).repaired,
			needs: []need{
				{"SysAdmin", daemon + "SYS_ADMIN", (*permissions).kernelUnknown},
				{"NetAdmin", daemon + "NET_ADMIN", (*permissions).kernelUnknown},
				{"SysPtrace", daemon + "SYS_PTRACE", (*permissions).processesUnknown},
				{"Chown", daemon + "CHOWN", ownerLost("add CHOWN to the container's securityContext.capabilities")},
				{"Fowner", daemon + "FOWNER", ownerLost("chmod")},
				{"DacOverride", daemon + "DAC_OVERRIDE", (*permissions).nothingWritten},
			},
		},
		ambientFeature(),
		ambientCapabilities(),
		nodeCapabilities(),
		{
			name: "Constraints", values: scenario.Values{"securityContextConstraints": scenario.Values{"enabled": true}}, foreign: true,
			needs: []need{{"Use", cluster + use, refused("istio-cni")}, {"HookUses", hook + use, refused("istio-cni-uninstall")}},
		},
	}
}

// permissions is a cluster in which the product is installed with one permission less.
type permissions struct {
	*scenario.Scenario
	t         *testing.T
	objects   dynamic.Interface
	full      chart.Rendering
	reduction chart.Reduction
	// patient is a captured pod on the node Bridge.
	patient *corev1.Pod
}

// TestPermissions checks that each permission that the chart may request is needed.
func TestPermissions(t *testing.T) {
	suite.Long(t)
	unknown := map[string]bool{}
	c, err := chart.Load(chartDirectory)
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.Grantable()
	if err != nil {
		t.Fatal(err)
	}
	for _, permission := range all {
		unknown[permission.String()] = true
	}
	for _, f := range features() {
		for _, need := range f.needs {
			delete(unknown, need.permission)
		}
		t.Run(f.name, f.run)
	}
	for name := range unknown {
		t.Errorf("nobody knows what this is for: %s", name)
	}
}

func (f feature) run(t *testing.T) {
	full := render(t, f.values)
	reductions, err := full.Reduced()
	if err != nil {
		t.Fatal(err)
	}
	values := f.values
	if f.foreign {
		values = nil
	}
	p := &permissions{Scenario: suite.BeginAsItIs(t), t: t, full: full}
	if p.objects, err = dynamic.NewForConfig(p.Cluster.Config()); err != nil {
		t.Fatal(err)
	}
	if f.before != nil {
		f.before(p)
	}
	p.Have(values)
	if f.prepare != nil {
		f.prepare(p)
	}
	for _, need := range f.needs {
		index := slices.IndexFunc(reductions, func(r chart.Reduction) bool { return r.Without.String() == need.permission })
		if index < 0 {
			t.Errorf("the chart doesn't ask for this: %s", need.permission)
			continue
		}
		t.Run(need.name, func(t *testing.T) {
			without := *p
			without.Scenario, without.t, without.reduction = suite.BeginAsItIs(t), t, reductions[index]
			without.take(!f.unready)
			need.missing(&without)
		})
	}
	if f.after != nil {
		f.after(p)
	}
}

// take removes the permission. A role's permission is restored at the end. A DaemonSet stays
// changed, because others follow. With ready, its pods are awaited.
func (p *permissions) take(ready bool) {
	p.t.Helper()
	for i, o := range p.reduction.Rendering.Objects {
		if o.Text == p.full.Objects[i].Text {
			continue
		}
		p.Do("take it away", func(ctx context.Context) error { return p.patch(ctx, o) })
		if o.Kind() == "DaemonSet" {
			p.Changed()
			if ready {
				p.awaitRollout()
			}
			continue
		}
		p.Cleanup("give it back", func(ctx context.Context) error { return p.patch(ctx, p.full.Objects[i]) })
	}
}

// container returns the only container of an object's pods.
func container(content map[string]any) (map[string]any, error) {
	list, _, err := unstructured.NestedFieldNoCopy(content, "spec", "template", "spec", "containers")
	if all, ok := list.([]any); ok && len(all) == 1 {
		if one, ok := all[0].(map[string]any); ok {
			return one, nil
		}
	}
	return nil, errors.Join(err, errors.New("the object's pods don't have one container"))
}

// patch sets an object of the cluster to its rendering, except for the image.
func (p *permissions) patch(ctx context.Context, o chart.Object) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return p.patchOnce(ctx, o) })
}

func (p *permissions) patchOnce(ctx context.Context, o chart.Object) error {
	of := p.objects.Resource(resource(o)).Namespace(o.Namespace())
	there, err := of.Get(ctx, o.Name(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if rules, ok := o.Content["rules"]; ok {
		there.Object["rules"] = rules
	} else {
		wanted, err := container(o.Content)
		if err != nil {
			return err
		}
		found, err := container(there.Object)
		if err != nil {
			return err
		}
		found["securityContext"] = wanted["securityContext"]
	}
	_, err = of.Update(ctx, there, metav1.UpdateOptions{})
	return err
}

// noPodStarts: the plugin may not read the pod.
func (p *permissions) noPodStarts() {
	p.Start(scenario.Workload{Name: "pod", Injected: true})
	p.Await("an event that says why", func(ctx context.Context) (bool, error) {
		events, err := p.Cluster.Client.CoreV1().Events(p.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreatePodSandBox"})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, "forbidden") }), err
	})
}

// awaitLog waits until a daemon on a node logs a line with all these words.
func (p *permissions) awaitLog(node *cluster.Node, words ...string) {
	p.t.Helper()
	logs := ""
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the daemons on %s have said\n%s", node.Name, logs)
		}
	}()
	p.Await(fmt.Sprintf("%q in a daemon's log", words), func(ctx context.Context) (bool, error) {
		pods, err := p.Cluster.Client.CoreV1().Pods(scenario.SystemNamespace).List(ctx, metav1.ListOptions{
			LabelSelector: "k8s-app=istio-cni-node", FieldSelector: "spec.nodeName=" + node.Name,
		})
		if err != nil {
			return false, nil //nolint:nilerr // the API server may be away
		}
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp != nil {
				continue
			}
			log, err := p.Cluster.Client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if err != nil {
				continue // it has just ended, or not started
			}
			logs = string(log)
			if hasLine(logs, words...) {
				return true, nil
			}
		}
		return false, nil
	})
}

// noPodsKnown: the daemon cannot answer plugins about pods, and logs that.
func (p *permissions) noPodsKnown() {
	p.Delete(p.Daemon(p.Bridge))
	p.awaitLog(p.Bridge, "forbidden", "pods")
}

// noPodsListed is noPodsKnown with an API server that streams no lists.
func (p *permissions) noPodsListed() {
	p.streamNoLists()
	p.noPodsKnown()
}

// streamNoLists makes the API server behave as those before 1.34.
func (p *permissions) streamNoLists() {
	serve := func(ctx context.Context, streaming string) error {
		server := p.Cluster.ControlPlane.APIServer
		server.Stop()
		server.Argument("--feature-gates", "WatchList="+streaming)
		if err := server.Start(); err != nil {
			return err
		}
		return p.Cluster.AwaitAPIServer(ctx)
	}
	p.Do("have the API server stream no lists", func(ctx context.Context) error { return serve(ctx, "false") })
	p.Cleanup("have it stream them again", func(ctx context.Context) error { return serve(ctx, "true") })
}

// endNotWatched: the daemon cannot detect the end of an installation whose role and account are
// deleted first, and logs that.
func (p *permissions) endNotWatched() {
	p.Delete(p.Daemon(p.Bridge))
	p.awaitLog(p.Bridge, "doesn't say whether the installation still exists", "forbidden", "istio-cni-installed")
}

// endNotListed is endNotWatched with an API server that streams no lists.
func (p *permissions) endNotListed() {
	p.streamNoLists()
	p.endNotWatched()
}

// namespaceUnknown: the daemon cannot detect the end of its namespace, and logs that.
func (p *permissions) namespaceUnknown() {
	p.Delete(p.Daemon(p.Bridge))
	p.awaitLog(p.Bridge, "the plugin may stay on the node", "may not get the Namespace istio-system")
}

// awaitRollout waits until all daemons belong to the newest generation.
func (p *permissions) awaitRollout() {
	p.t.Helper()
	p.Await("the rollout of the daemon", func(ctx context.Context) (bool, error) {
		set, err := p.Cluster.Client.AppsV1().DaemonSets(scenario.SystemNamespace).Get(ctx, "istio-cni-node", metav1.GetOptions{})
		all := int32(len(p.Cluster.Nodes()))
		return err == nil && set.Status.ObservedGeneration == set.Generation && set.Status.UpdatedNumberScheduled == all && set.Status.NumberReady == all, err
	})
}

// pluginStays: the daemons do not notice the uninstall.
func (p *permissions) pluginStays() {
	foreground := metav1.DeletePropagationForeground
	p.Changed()
	p.Do("delete the DaemonSet", func(ctx context.Context) error {
		return p.Cluster.Client.AppsV1().DaemonSets(scenario.SystemNamespace).
			Delete(ctx, "istio-cni-node", metav1.DeleteOptions{PropagationPolicy: &foreground})
	})
	p.Await("the end of the DaemonSet", func(ctx context.Context) (bool, error) {
		_, err := p.Cluster.Client.AppsV1().DaemonSets(scenario.SystemNamespace).Get(ctx, "istio-cni-node", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	for _, node := range p.Cluster.Nodes() {
		if files := p.NetworkFiles(node); !strings.Contains(files[cluster.FileName], "istio-cni") {
			p.t.Errorf("%s has no plugin any more:\n%s", node.Name, files[cluster.FileName])
		}
	}
}

const selected = "meshcni-e2e-selected"

// selectNodes labels all nodes.
func (p *permissions) selectNodes() {
	for _, node := range p.Cluster.Nodes() {
		p.Do("label "+node.Name, func(ctx context.Context) error { return p.label(ctx, node, `"yes"`) })
		p.Cleanup("take the label away", func(ctx context.Context) error { return p.label(ctx, node, "null") })
	}
}

func (p *permissions) label(ctx context.Context, node *cluster.Node, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, selected, value)
	_, err := p.Cluster.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// nodeStays: a daemon does not notice that its node is no longer selected.
func (p *permissions) nodeStays() {
	daemon := p.Daemon(p.Bridge)
	p.Do("select it no more", func(ctx context.Context) error { return p.label(ctx, p.Bridge, "null") })
	p.Await("the daemon's end", func(ctx context.Context) (bool, error) {
		_, err := p.Cluster.Client.CoreV1().Pods(daemon.Namespace).Get(ctx, daemon.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if files := p.NetworkFiles(p.Bridge); !strings.Contains(files[cluster.FileName], "istio-cni") {
		p.t.Errorf("%s has no plugin any more:\n%s", p.Bridge.Name, files[cluster.FileName])
	}
}

// hookFails: the pre-delete Job cannot do all of its work.
func (p *permissions) hookFails() {
	p.Changed() // it may have deleted the DaemonSet
	p.createHooks("ServiceAccount", "Role", "RoleBinding", "Job")
	p.Await("the Job's failure", func(ctx context.Context) (bool, error) {
		job, err := p.Cluster.Client.BatchV1().Jobs(scenario.SystemNamespace).Get(ctx, "istio-cni-uninstall", metav1.GetOptions{})
		if err == nil && job.Status.Succeeded > 0 {
			err = errors.New("it has succeeded")
		}
		return err == nil && slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue
		}), err
	})
}

// createHooks creates Helm's pre-delete hooks of these kinds.
func (p *permissions) createHooks(kinds ...string) {
	p.t.Helper()
	for _, o := range p.reduction.Rendering.Hooks {
		if !slices.Contains(kinds, o.Kind()) {
			continue
		}
		of := p.objects.Resource(resource(o)).Namespace(o.Namespace())
		p.Do("create "+o.Kind(), func(ctx context.Context) error {
			content := &unstructured.Unstructured{Object: o.Content}
			if o.Kind() == "Job" {
				found, err := container(content.Object)
				if err != nil {
					return err
				}
				found["image"] = product.TestReference("install-cni", scenario.FirstVersion)
				if err := unstructured.SetNestedField(content.Object, int64(0), "spec", "backoffLimit"); err != nil {
					return err
				}
			}
			_, err := of.Create(ctx, content, metav1.CreateOptions{})
			return err
		})
		p.Cleanup("delete "+o.Kind(), func(ctx context.Context) error {
			background := metav1.DeletePropagationBackground
			return of.Delete(ctx, o.Name(), metav1.DeleteOptions{PropagationPolicy: &background})
		})
	}
}

// refused: OpenShift queries the API server whether an account may use the constraints. It may only
// with the permission.
func refused(account string) func(*permissions) {
	return func(p *permissions) {
		p.createHooks("ServiceAccount", "Role", "RoleBinding")
		p.Cleanup("give the roles what they had", func(ctx context.Context) error { return p.patchRoles(ctx, render(p.t, nil)) })
		for _, step := range []struct {
			of  chart.Rendering
			may bool
		}{{p.full, true}, {p.reduction.Rendering, false}} {
			p.Do("change the roles", func(ctx context.Context) error { return p.patchRoles(ctx, step.of) })
			p.awaitAccess(account, step.may, authorizationv1.ResourceAttributes{
				Namespace: scenario.SystemNamespace, Verb: "use",
				Group: "security.openshift.io", Resource: "securitycontextconstraints", Name: "istio-cni",
			})
		}
	}
}

// awaitAccess waits until the API server's authorizer, which follows the roles, allows or refuses
// this to a service account.
func (p *permissions) awaitAccess(account string, may bool, to authorizationv1.ResourceAttributes) {
	p.t.Helper()
	p.Await(fmt.Sprintf("the API server's word on %s: %t", account, may), func(ctx context.Context) (bool, error) {
		review, err := p.Cluster.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + scenario.SystemNamespace + ":" + account, ResourceAttributes: &to,
			},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed == may, err
	})
}

// patchRoles sets the cluster's roles to those of a rendering.
func (p *permissions) patchRoles(ctx context.Context, of chart.Rendering) error {
	for _, o := range slices.Concat(of.Objects, of.Hooks) {
		if _, ok := o.Content["rules"]; !ok {
			continue
		}
		if err := p.patch(ctx, o); err != nil {
			return err
		}
	}
	return nil
}
