// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

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

// container is the only one of an object's pods.
func container(content map[string]any) (map[string]any, error) {
	list, _, err := unstructured.NestedFieldNoCopy(content, "spec", "template", "spec", "containers")
	if all, ok := list.([]any); ok && len(all) == 1 {
		if one, ok := all[0].(map[string]any); ok {
			return one, nil
		}
	}
	return nil, errors.Join(err, errors.New("the object's pods don't have one container"))
}

// need is what a permission is for: what doesn't work without it.
type need struct {
	permission string
	// values have the chart ask for it.
	values scenario.Values
	// prepare makes the cluster what the values ask for; nil for nothing.
	prepare func(p *permissions)
	// missing shows, in a cluster without the permission, that something doesn't work.
	missing func(p *permissions)
}

// needs are those of all permissions that the chart can ask for.
func needs() map[string]need {
	const role, hook, daemon = "Role istio-cni: ", "Role istio-cni-uninstall: ", "DaemonSet istio-cni-node: "
	judging := scenario.Values{"settings": scenario.Values{"repairInitContainerExitCode": 1}}
	tries, selecting := scenario.Values{"tryKernel": true}, scenario.Values{"nodeSelector": scenario.Values{selected: "yes"}}
	return map[string]need{
		"Get":          {"ClusterRole istio-cni: get pods", scenario.Values{"watchPods": false}, nil, (*permissions).noPodStarts},
		"List":         {"ClusterRole istio-cni: list pods", nil, nil, (*permissions).noPodsListed},
		"Watch":        {"ClusterRole istio-cni: watch pods", nil, nil, (*permissions).noPodsKnown},
		"GetNode":      {"ClusterRole istio-cni: get nodes", selecting, (*permissions).selectNodes, (*permissions).nodeStays},
		"CreateEvent":  {"ClusterRole istio-cni: create events", judging, nil, (*permissions).nobodyTold},
		"GetDaemonSet": {role + "get apps/daemonsets istio-cni-node", nil, nil, (*permissions).pluginStays},
		"HookGets":     {hook + "get apps/daemonsets istio-cni-node", nil, nil, (*permissions).hookFails},
		"HookDeletes":  {hook + "delete apps/daemonsets istio-cni-node", nil, nil, (*permissions).hookFails},
		"SysAdmin":     {daemon + "capability SYS_ADMIN", tries, nil, (*permissions).kernelUnknown},
		"NetAdmin":     {daemon + "capability NET_ADMIN", tries, nil, (*permissions).kernelUnknown},
		"DacOverride":  {daemon + "capability DAC_OVERRIDE", scenario.Values{"capabilities": []any{"DAC_OVERRIDE"}}, nil, (*permissions).nothingWritten},
	}
}

// permissions is a cluster in which the product is installed with one permission less.
type permissions struct {
	*scenario.Scenario
	t         *testing.T
	objects   dynamic.Interface
	reduction chart.Reduction
}

// TestPermissions: each permission that the chart asks for is needed for something.
func TestPermissions(t *testing.T) {
	suite.Long(t)
	unknown := map[string]bool{}
	for _, need := range needs() {
		for _, reduction := range reductions(t, need.values) {
			unknown[reduction.Without.String()] = true
		}
	}
	for name, need := range needs() {
		all := reductions(t, need.values)
		index := slices.IndexFunc(all, func(r chart.Reduction) bool { return r.Without.String() == need.permission })
		if index < 0 {
			t.Errorf("the chart doesn't ask for this: %s", need.permission)
			continue
		}
		delete(unknown, need.permission)
		t.Run(name, func(t *testing.T) { without(t, need, all[index]) })
	}
	for name := range unknown {
		t.Errorf("nobody knows what this is for: %s", name)
	}
}

func reductions(t *testing.T, values scenario.Values) []chart.Reduction {
	t.Helper()
	all, err := render(t, values).Reduced()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// without installs the product without a permission.
func without(t *testing.T, need need, reduction chart.Reduction) {
	t.Helper()
	s := suite.Begin(t)
	client, err := dynamic.NewForConfig(s.Cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	p := &permissions{s, t, client, reduction}
	if need.prepare != nil {
		need.prepare(p)
	}
	s.Do("install", func(ctx context.Context) error { return s.Install(ctx, need.values) })
	s.Cleanup("install as it was", func(ctx context.Context) error { return s.Install(ctx, scenario.Values{}) })
	full := render(t, need.values)
	for i, o := range reduction.Rendering.Objects {
		if o.Text != full.Objects[i].Text {
			s.Do("take it away", func(ctx context.Context) error { return p.patch(ctx, o) })
			s.Cleanup("give it back", func(ctx context.Context) error { return p.patch(ctx, full.Objects[i]) })
		}
	}
	need.missing(p)
}

// patch has an object of the cluster be as it is rendered, but for the image.
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

// noPodStarts: the plugin may not ask which pod this is.
func (p *permissions) noPodStarts() {
	p.Start(scenario.Workload{Name: "pod", Injected: true})
	p.Await("an event that says why", func(ctx context.Context) (bool, error) {
		events, err := p.Cluster.Client.CoreV1().Events(p.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreatePodSandBox"})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, "forbidden") }), err
	})
}

// awaitLog waits until a daemon on a node has said something.
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
			log, err := p.Cluster.Client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if err != nil {
				continue // it has just ended, or not begun
			}
			logs = string(log)
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(logs, word) }) {
				return true, nil
			}
		}
		return false, nil
	})
}

// noPodsKnown: the daemon can't tell plugins about pods, and says so.
func (p *permissions) noPodsKnown() {
	p.Delete(p.Daemon(p.Bridge))
	p.awaitLog(p.Bridge, "forbidden", "pods")
}

// noPodsListed is noPodsKnown with an API server that streams no lists, as those before 1.34.
func (p *permissions) noPodsListed() {
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
	p.noPodsKnown()
}

// kernelUnknown: the daemon can't try out the kernel, and says so.
func (p *permissions) kernelUnknown() { p.awaitLog(p.Bridge, "operation not permitted (it takes CAP_") }

// nothingWritten: a directory of the node belongs to somebody else.
func (p *permissions) nothingWritten() {
	directory := p.Bridge.Path("/etc/cni/net.d")
	if err := os.Chmod(directory, 0o555); err != nil {
		p.t.Fatal(err)
	}
	p.Cleanup("give the directory back", func(context.Context) error { return os.Chmod(directory, 0o755) })
	p.awaitRollout()
	if err := p.Bridge.InstallNetwork(cluster.BridgeNetwork); err != nil { // its owner writes it anew, without the plugin
		p.t.Fatal(err)
	}
	p.awaitLog(p.Bridge, "with a security context that may write there")
}

// awaitRollout waits until all daemons are of the newest kind.
func (p *permissions) awaitRollout() {
	p.t.Helper()
	p.Await("the rollout of the daemon", func(ctx context.Context) (bool, error) {
		set, err := p.Cluster.Client.AppsV1().DaemonSets(scenario.SystemNamespace).Get(ctx, "istio-cni-node", metav1.GetOptions{})
		all := int32(len(p.Cluster.Nodes()))
		return err == nil && set.Status.ObservedGeneration == set.Generation && set.Status.UpdatedNumberScheduled == all && set.Status.NumberReady == all, err
	})
}

// pluginStays: the daemons don't find out that this is the end.
func (p *permissions) pluginStays() {
	foreground := metav1.DeletePropagationForeground
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

// selected is a label of nodes.
const selected = "meshcni-e2e-selected"

// selectNodes has all nodes have the label.
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

// nodeStays: a daemon doesn't find out that its node isn't selected any more.
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

// nobodyTold: the daemon can't tell, on a pod whose validator has failed, that it isn't captured.
func (p *permissions) nobodyTold() {
	p.Start(scenario.Workload{Name: "broken", Injected: true, Node: p.Bridge.Name, Change: func(template *corev1.PodTemplateSpec) {
		validator := template.Spec.Containers[0]
		validator.Name, validator.Args, validator.ReadinessProbe = "istio-validation", []string{"nonsense"}, nil // it ends with 1
		template.Spec.InitContainers = append(template.Spec.InitContainers, validator)
	}})
	p.awaitLog(p.Bridge, "forbidden", "events")
}

// hookFails: the Job before the deletion can't do its work.
func (p *permissions) hookFails() {
	for _, o := range p.reduction.Rendering.Hooks {
		p.Do("create "+o.Kind(), func(ctx context.Context) error {
			of := p.objects.Resource(resource(o)).Namespace(o.Namespace())
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
			of := p.objects.Resource(resource(o)).Namespace(o.Namespace())
			return of.Delete(ctx, o.Name(), metav1.DeleteOptions{PropagationPolicy: &background})
		})
	}
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
