// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/controller"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// TestSnapshot tells of the pods of the node, with all that decides about them, and of their
// namespaces alone.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	web := pod("web", addresses("10.0.0.7", "fd00::7"))
	web.ServiceAccount, web.HostNetwork = "web", true
	web.Labels, web.Annotations = map[string]string{"tier": "front"}, map[string]string{"note": "1"}
	elsewhere := pod("elsewhere")
	elsewhere.Node = "b"
	cluster := shop(web, elsewhere, pod("done", phase("Succeeded")), pod("failed", phase("Failed")))
	cluster.PutNamespace("bank", nil)
	a := read(start(t, cluster))
	want := ambient.Change{
		Namespaces: []ambient.Namespace{{Name: "shop", Labels: map[string]string{"istio.io/dataplane-mode": "ambient"}}},
		Pods: []ambient.Pod{{
			Pod: interception.Pod{
				Namespace: "shop", Name: "web", UID: "uid-web", ServiceAccount: "web", HostNetwork: true,
				Labels:      map[string]string{"app": "web", "security.istio.io/tlsMode": "istio", "tier": "front"},
				Annotations: map[string]string{"note": "1", "sidecar.istio.io/status": `{"initContainers":null,"containers":["istio-proxy"]}`},
			},
			Phase: "Running", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")},
		}},
		Complete: true,
	}
	if diff := cmp.Diff(want, a.next(t), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	a.wantNoNews(t)
}

// TestEmptyNode tells at once that this was all.
func TestEmptyNode(t *testing.T) {
	t.Parallel()
	a := read(start(t, fakecluster.New()))
	if diff := cmp.Diff(ambient.Change{Complete: true}, a.next(t)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestChanges follows a pod's life: it gets its addresses after it was made, other labels and an
// annotation, another one in place of an address, ends, and is deleted.
func TestChanges(t *testing.T) {
	t.Parallel()
	a := read(start(t, shop(pod("job", phase("Pending"), addresses("")))))
	a.await(t, func() bool { return a.complete })
	if p := a.pods["uid-job"]; p.Phase != "Pending" || len(p.Addresses) != 0 {
		t.Errorf("told %+v", p)
	}
	now := pod("job", addresses("10.0.0.7"))
	for _, step := range []struct {
		change func()
		told   func(ambient.Pod) bool
	}{
		{func() {}, func(p ambient.Pod) bool { return len(p.Addresses) == 1 && p.Phase == "Running" }},
		{func() { now.Labels = map[string]string{"x": "y"} }, func(p ambient.Pod) bool { return p.Labels["x"] == "y" }},
		{func() { now.Annotations = map[string]string{"x": "y"} }, func(p ambient.Pod) bool { return p.Annotations["x"] == "y" }},
		{func() { now.Addresses = []string{"10.0.0.8"} }, func(p ambient.Pod) bool { return p.Addresses[0].String() == "10.0.0.8" }},
		{func() { now.Phase = "Succeeded" }, ambient.Pod.Finished},
	} {
		step.change()
		a.cluster.Put(now)
		a.await(t, func() bool { return step.told(a.pods["uid-job"]) })
	}
	a.cluster.Delete("shop", "job")
	a.await(t, func() bool { return slices.Equal(a.gone, []string{"uid-job"}) })
}

// TestUpdatesWithoutNews are those of conditions and containers.
func TestUpdatesWithoutNews(t *testing.T) {
	t.Parallel()
	a := read(start(t, shop(pod("web"))))
	a.await(t, func() bool { return a.complete })
	code := int32(0)
	a.cluster.Put(pod("web", func(p *fakecluster.Pod) { p.Validator = &code }))
	a.cluster.PutNamespace("shop", map[string]string{"istio.io/dataplane-mode": "ambient"})
	a.cluster.Put(pod("another"))
	if change := a.next(t); len(change.Pods) != 1 || change.Pods[0].Name != "another" || len(change.Namespaces) != 0 {
		t.Errorf("got %+v", change)
	}
}

// TestProxies tells of proxies when they were created and whether they are ready, and of no other
// pod, also not of one with their labels elsewhere.
func TestProxies(t *testing.T) {
	t.Parallel()
	policy := ambient.IstioPolicy()
	policy.ProxyNamespace, policy.ProxyLabels = "shop", map[string]string{"app": "ztunnel"}
	object := func(namespace, app, ready string) fakecluster.Pod {
		name := app + "-in-" + namespace
		return fakecluster.Pod{Namespace: namespace, Name: name, UID: "uid-" + name, Node: "a", Object: fmt.Sprintf(
			`{"metadata":{"namespace":%q,"name":%q,"uid":"uid-%s","labels":{"app":%q},"creationTimestamp":"2026-01-02T03:04:05Z"},
			"spec":{"nodeName":"a"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q}]}}`, namespace, name, name, app, ready)}
	}
	cluster := shop(object("shop", "ztunnel", "False"), object("shop", "web", "True"), object("bank", "ztunnel", "True"))
	cluster.PutNamespace("bank", nil)
	a := read(start(t, cluster, func(o *controller.Options) { o.Policy = policy }))
	a.next(t)
	want := func(name string, created time.Time, ready bool) {
		t.Helper()
		if pod := a.pods["uid-"+name]; !pod.Created.Equal(created) || pod.Ready != ready {
			t.Errorf("pod %s: created %s, ready %t, want %s, %t", name, pod.Created, pod.Ready, created, ready)
		}
	}
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want("ztunnel-in-shop", created, false)
	want("web-in-shop", time.Time{}, false)
	want("ztunnel-in-bank", time.Time{}, false)
	cluster.Put(object("shop", "web", "False"))
	cluster.Put(object("shop", "ztunnel", "True"))
	a.next(t)
	want("ztunnel-in-shop", created, true)
	want("web-in-shop", time.Time{}, false)
	a.wantNoNews(t)
}

// TestNamespaceChanges tells of the labels of a namespace with pods.
func TestNamespaceChanges(t *testing.T) {
	t.Parallel()
	a := read(start(t, shop(pod("web"))))
	a.await(t, func() bool { return a.complete })
	a.cluster.PutNamespace("bank", map[string]string{"x": "1"})
	a.cluster.PutNamespace("shop", nil)
	want := ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop"}}}
	if diff := cmp.Diff(want, a.next(t), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	a.cluster.Put(fakecluster.Pod{Namespace: "bank", Name: "till", UID: "1", Node: "a"})
	a.await(t, func() bool { return a.pods["1"].Name == "till" && a.namespaces["bank"]["x"] == "1" })
	// After its last pod, a namespace is told of again only with the next pod.
	a.cluster.Delete("bank", "till")
	a.await(t, func() bool { return len(a.gone) == 1 })
	a.cluster.PutNamespace("bank", map[string]string{"x": "2"})
	a.cluster.PutNamespace("shop", map[string]string{"marker": "1"})
	a.await(t, func() bool { return a.namespaces["shop"]["marker"] == "1" })
	if a.namespaces["bank"]["x"] != "1" {
		t.Errorf("a namespace without pods was told of")
	}
	a.cluster.Put(fakecluster.Pod{Namespace: "bank", Name: "till", UID: "2", Node: "a"})
	a.await(t, func() bool { return a.pods["2"].Name == "till" && a.namespaces["bank"]["x"] == "2" })
}

// TestReusedAddress has a job whose address another pod gets while the job's object is still there.
// Both are told of, the job as one that has ended.
func TestReusedAddress(t *testing.T) {
	t.Parallel()
	a := read(start(t, shop(pod("job", addresses("10.0.0.7")))))
	a.await(t, func() bool { return a.complete })
	a.cluster.Put(pod("job", addresses("10.0.0.7"), phase("Succeeded")), pod("web", addresses("10.0.0.7")))
	a.await(t, func() bool { return a.pods["uid-job"].Finished() && a.pods["uid-web"].Name == "web" })
	if len(a.gone) != 0 {
		t.Errorf("%v are gone", a.gone)
	}
}

// TestReplacedPod has another pod of the same name.
func TestReplacedPod(t *testing.T) {
	t.Parallel()
	a := read(start(t, shop(pod("db-0"))))
	a.await(t, func() bool { return a.complete })
	a.cluster.Delete("shop", "db-0")
	a.cluster.Put(pod("db-0", renewed))
	a.await(t, func() bool { return slices.Equal(a.uids(), []string{"later"}) })
	if !slices.Equal(a.gone, []string{"uid-db-0"}) {
		t.Errorf("%v are gone", a.gone)
	}
}

// TestOutage has an API server that is away, and then knows no more what has changed since: nothing
// is told to be gone meanwhile, and afterwards just what has changed.
func TestOutage(t *testing.T) {
	t.Parallel()
	a := read(start(t, shop(pod("db-0"), pod("old"), pod("web"))))
	a.await(t, func() bool { return a.complete })
	a.cluster.Refuse(http.StatusServiceUnavailable)
	a.awaitError(t, "list and watch namespaces")
	a.wantNoNews(t)
	a.cluster.Delete("shop", "old")
	a.cluster.Put(pod("db-0", renewed), pod("new"))
	a.cluster.PutNamespace("shop", map[string]string{"x": "1"})
	a.cluster.Expire()
	a.cluster.Refuse(0)
	a.await(t, func() bool {
		return slices.Equal(a.uids(), []string{"later", "uid-new", "uid-web"}) && a.namespaces["shop"]["x"] == "1"
	})
	if slices.Sort(a.gone); !slices.Equal(a.gone, []string{"uid-db-0", "uid-old"}) {
		t.Errorf("%v are gone", a.gone)
	}
}

// TestExpiredWatch goes on after 410, without an error.
func TestExpiredWatch(t *testing.T) {
	t.Parallel()
	a := read(start(t, shop(pod("web"))))
	a.await(t, func() bool { return a.complete })
	a.cluster.Expire()
	a.cluster.Delete("shop", "web")
	a.cluster.PutNamespace("shop", map[string]string{"x": "1"})
	a.cluster.Put(pod("new"))
	a.await(t, func() bool { return slices.Equal(a.uids(), []string{"uid-new"}) && a.namespaces["shop"]["x"] == "1" })
	select {
	case err := <-a.errors:
		t.Errorf("reported: %v", err)
	default:
	}
}

// TestIncompleteView tells nothing while namespaces are forbidden, and names the permission.
func TestIncompleteView(t *testing.T) {
	t.Parallel()
	cluster := shop(pod("web"))
	forbid := func(r *http.Request) int {
		if r.URL.Path == "/api/v1/namespaces" {
			return http.StatusForbidden
		}
		return 0
	}
	cluster.Answer(forbid)
	a := read(start(t, cluster))
	a.awaitError(t, "a role has to allow this program to list and watch namespaces")
	a.wantNoNews(t)
	cluster.Answer(nil)
	if change := a.next(t); !change.Complete || len(change.Pods) != 1 {
		t.Errorf("got %+v", change)
	}
}

// lateNamespaces makes the informer of namespaces list, and never learn what changes. Each request
// for one namespace has the answer of one.
func lateNamespaces(cluster *fakecluster.Cluster, one func() int) {
	cluster.Answer(func(r *http.Request) int {
		query := r.URL.Query()
		switch {
		case r.URL.Path != "/api/v1/namespaces":
		case query.Get("sendInitialEvents") == "true":
			return http.StatusUnprocessableEntity // as an API server that does not stream lists
		case query.Get("watch") == "true":
			<-r.Context().Done()
		case query.Get("fieldSelector") != "":
			return one()
		}
		return 0
	})
}

// TestLateNamespace asks for the namespace of a new pod, which its informer does not know.
func TestLateNamespace(t *testing.T) {
	t.Parallel()
	cluster := shop(pod("web"))
	refused := make(chan int, 2)
	refused <- http.StatusServiceUnavailable
	refused <- http.StatusForbidden
	lateNamespaces(cluster, func() int {
		select {
		case status := <-refused:
			return status
		default:
			return 0
		}
	})
	a := read(start(t, cluster))
	a.await(t, func() bool { return a.complete })
	cluster.PutNamespace("bank", map[string]string{"x": "1"})
	cluster.Put(fakecluster.Pod{Namespace: "bank", Name: "till", UID: "till", Node: "a"})
	a.await(t, func() bool { return a.pods["till"].Name == "till" && a.namespaces["bank"]["x"] == "1" })
	a.awaitError(t, "read namespace bank: ")
	a.awaitError(t, "a role has to allow this program to list namespaces")
}

// TestOrphan tells of a pod whose namespace does not exist, and that this was all.
func TestOrphan(t *testing.T) {
	t.Parallel()
	cluster := shop(pod("web"))
	cluster.DeleteNamespace("shop")
	a := read(start(t, cluster))
	a.await(t, func() bool { return a.complete })
	if labels, told := a.namespaces["shop"]; !told || labels != nil || len(a.pods) != 1 {
		t.Errorf("told of %+v, %+v", a.namespaces, a.pods)
	}
	cluster.PutNamespace("shop", map[string]string{"x": "1"})
	a.await(t, func() bool { return a.namespaces["shop"]["x"] == "1" })
}

// TestLookupsAreForgotten has a namespace that was looked up, changed while the node had no pod of
// it, and looked up again.
func TestLookupsAreForgotten(t *testing.T) {
	t.Parallel()
	cluster := shop()
	lateNamespaces(cluster, func() int { return 0 })
	a := read(start(t, cluster))
	a.await(t, func() bool { return a.complete })
	for _, label := range []string{"1", "2"} {
		cluster.PutNamespace("bank", map[string]string{"x": label})
		cluster.Put(fakecluster.Pod{Namespace: "bank", Name: "till", UID: label, Node: "a"})
		a.await(t, func() bool { return a.pods[label].Name == "till" })
		if got := a.namespaces["bank"]["x"]; got != label {
			t.Errorf("the label is %q, want %q", got, label)
		}
		cluster.Delete("bank", "till")
		a.await(t, func() bool { return len(a.pods) == 0 })
	}
}

// TestSlowReader gets the latest of each pod, and nothing of those that came and went.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	f := start(t, shop(pod("web")))
	a := read(f)
	a.await(t, func() bool { return a.complete })
	for i := range 100 {
		name := fmt.Sprintf("job-%d", i)
		f.cluster.Put(pod("web", addresses(fmt.Sprintf("10.0.0.%d", i+1))), pod(name))
		f.cluster.Delete("shop", name)
	}
	// The last news comes after all others: the informer keeps their order.
	f.cluster.Put(pod("last"))
	a.await(t, func() bool { return a.pods["uid-last"].Name == "last" })
	if got := a.pods["uid-web"].Addresses[0].String(); got != "10.0.0.100" {
		t.Errorf("web has %s", got)
	}
	a.await(t, func() bool { return slices.Equal(a.uids(), []string{"uid-last", "uid-web"}) })
}

// TestManyPods are told of in several changes. Only the last says that this was all.
func TestManyPods(t *testing.T) {
	t.Parallel()
	const many = 300
	cluster := shop()
	for i := range many {
		cluster.Put(pod(fmt.Sprintf("web-%d", i)))
	}
	a := read(start(t, cluster))
	a.await(t, func() bool {
		if a.complete != (len(a.pods) == many) {
			t.Fatalf("complete %t with %d pods", a.complete, len(a.pods))
		}
		return a.complete
	})
	if a.changes < 3 {
		t.Errorf("%d changes", a.changes)
	}
}

// TestLargePod is told of with what decides about it.
func TestLargePod(t *testing.T) {
	t.Parallel()
	large := pod("large", addresses("10.0.0.7"))
	large.ServiceAccount, large.Labels = "large", map[string]string{"istio.io/dataplane-mode": "none"}
	large.Annotations = map[string]string{
		"note": strings.Repeat("x", nodepods.MaxPod), "ambient.istio.io/dns-capture": "false", "ambient.istio.io/redirection": "enabled",
	}
	a := read(start(t, shop(large)))
	a.await(t, func() bool { return a.complete })
	p := a.pods["uid-large"]
	if p.Labels["istio.io/dataplane-mode"] != "none" || p.ServiceAccount != "large" || len(p.Addresses) != 1 || p.Phase != "Running" ||
		p.Annotations["ambient.istio.io/dns-capture"] != "false" || p.Annotations["ambient.istio.io/redirection"] != "enabled" ||
		p.Annotations["note"] != "" {
		t.Errorf("told %+v", p)
	}
}

// TestEnd ends Next.
func TestEnd(t *testing.T) {
	t.Parallel()
	f := start(t, shop())
	a := read(f)
	a.await(t, func() bool { return a.complete })
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := f.Next(ctx); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	f.end()
	if _, err := f.Next(t.Context()); !errors.Is(err, controller.ErrStopped) {
		t.Errorf("got %v", err)
	}
}
