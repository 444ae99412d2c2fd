// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

// TestModes has one broken pod among others, and applies each mode to it.
func TestModes(t *testing.T) {
	t.Parallel()
	for mode, test := range map[repair.Mode]struct {
		writes []string
		event  string
		gone   bool
	}{
		repair.ModeReport: {[]string{"POST events 201"}, "BrokenPod", false},
		repair.ModeLabel:  {[]string{"PATCH status 200", "POST events 201"}, "LabelBrokenPod", false},
		repair.ModeDelete: {[]string{"DELETE web-0 200", "POST events 201"}, "DeleteBrokenPod", true},
		repair.ModeEvict:  {[]string{"POST eviction 200", "POST events 201"}, "EvictBrokenPod", true},
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			elsewhere := broken("elsewhere")
			elsewhere.Node = "b"
			f := start(t, options(mode), broken("web-0"), pod("web-1", validated(0)), elsewhere)
			f.awaitDone(t, mode, controller.ResultSuccess, 1)
			f.awaitScan(t)
			f.wantEvents(t, [3]string{test.event, "web-0", "istio-validation"})
			if diff := cmp.Diff(test.writes, writes(f)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			p, found := f.cluster.Pod("shop", "web-0")
			if found == test.gone || (p.Labels["cni.istio.io/uninitialized"] == "true") != (mode == repair.ModeLabel) {
				t.Errorf("found %v, labels %v", found, p.Labels)
			}
			if outcomes := f.told(); len(outcomes) != 1 || outcomes[0].Result != controller.ResultSuccess || outcomes[0].Finding.Of.Name != "web-0" {
				t.Errorf("told %+v", outcomes)
			}
		})
	}
}

// writes returns the writes as method, last part of the path, and status.
func writes(f *fixture) []string {
	var all []string
	for _, w := range f.cluster.Writes() {
		all = append(all, fmt.Sprintf("%s %s %d", w.Method, w.Path[strings.LastIndex(w.Path, "/")+1:], w.Status))
	}
	return all
}

func TestVerdictsAreCounted(t *testing.T) {
	t.Parallel()
	other := pod("other", validated(126))
	other.Labels = map[string]string{"sidecar.istio.io/inject": "false"}
	f := start(t, options(repair.ModeReport), broken("web-0"), pod("web-1", validated(0)), pod("web-2", validated(0)), pod("web-3"), other)
	f.awaitScan(t)
	want := map[repair.Verdict]int{repair.Broken: 1, repair.Healthy: 2, repair.Unknown: 1, repair.NotOurs: 1}
	f.await(t, "counted", func() bool { return cmp.Equal(want, f.Status().Pods) })
	f.cluster.Delete("shop", "web-1")
	f.cluster.Put(pod("web-0", validated(0)))
	want = map[repair.Verdict]int{repair.Healthy: 2, repair.Unknown: 1, repair.NotOurs: 1}
	f.await(t, "counted anew", func() bool { return cmp.Equal(want, f.Status().Pods) })
}

// TestPolicyByNamespaceAndOwner: a rule evicts a Job's pod, which is never restarted; a pod without
// a controller is reported.
func TestPolicyByNamespaceAndOwner(t *testing.T) {
	t.Parallel()
	o := options()
	o.Policy.Rules = []repair.Rule{
		{OwnerKinds: []string{"Job"}, Do: []repair.Mode{repair.ModeDelete}},
		{Namespaces: []string{"shop"}, Do: []repair.Mode{repair.ModeEvict}},
	}
	job, alone := broken("job"), broken("alone")
	job.Owner, job.RestartPolicy, alone.Owner = "Job/report", "Never", ""
	f := start(t, o, job, alone, broken("web-0"))
	f.awaitDone(t, repair.ModeDelete, controller.ResultSuccess, 1)
	f.awaitDone(t, repair.ModeEvict, controller.ResultSuccess, 1)
	f.awaitDone(t, repair.ModeReport, controller.ResultSuccess, 1)
	f.wantEvents(t, [3]string{"BrokenPod", "alone", "not evict: no controller"}, [3]string{"DeleteBrokenPod", "job"}, [3]string{"EvictBrokenPod", "web-0"})
}

// TestConflict: the pod changes between the diagnosis and the deletion; only what was diagnosed is
// deleted.
func TestConflict(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	cluster.Put(broken("web-0"))
	var once atomic.Bool
	cluster.Answer(func(r *http.Request) int {
		if r.Method == http.MethodDelete && once.CompareAndSwap(false, true) {
			changed := broken("web-0")
			changed.Labels = map[string]string{"changed": "meanwhile"}
			cluster.Put(changed)
		}
		return 0
	})
	f := startAt(t, cluster, options(repair.ModeDelete))
	f.awaitDone(t, repair.ModeDelete, controller.ResultSuccess, 1)
	got := slices.DeleteFunc(writes(f), func(w string) bool { return strings.HasPrefix(w, "POST events") })
	if diff := cmp.Diff([]string{"DELETE web-0 409", "DELETE web-0 200"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if skipped := f.Status().Done[controller.ModeResult{Mode: repair.ModeDelete, Result: controller.ResultSkip}]; skipped != 1 {
		t.Errorf("skipped %d times", skipped)
	}
}

// TestRecreated: another pod takes the name while the old one is being deleted.
func TestRecreated(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	cluster.Put(broken("web-0"))
	cluster.Answer(func(r *http.Request) int {
		if r.Method == http.MethodDelete {
			again := pod("web-0", validated(0))
			again.UID = "another"
			cluster.Put(again)
		}
		return 0
	})
	f := startAt(t, cluster, options(repair.ModeDelete))
	f.awaitDone(t, repair.ModeDelete, controller.ResultSkip, 1)
	f.await(t, "healthy", func() bool { return f.Status().Pods[repair.Healthy] == 1 })
	if p, found := cluster.Pod("shop", "web-0"); !found || p.UID != "another" {
		t.Errorf("found %v %+v", found, p)
	}
	f.wantEvents(t)
}

// TestForbidden: a forbidden deletion is reported; attempts are bounded, and start again in the
// next round.
func TestForbidden(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	cluster.Put(broken("web-0"))
	var allowed atomic.Bool
	cluster.Answer(func(r *http.Request) int {
		if r.Method == http.MethodDelete && !allowed.Load() {
			return http.StatusForbidden
		}
		return 0
	})
	f := startAt(t, cluster, options(repair.ModeDelete))
	f.awaitDone(t, repair.ModeDelete, controller.ResultFail, 1)
	f.await(t, "told", func() bool { return len(f.told()) > 0 })
	if err := f.told()[0].Err; err == nil || !strings.Contains(err.Error(), "delete pod shop/web-0: ") {
		t.Errorf("got %v", err)
	}
	f.wantEvents(t, [3]string{"DeleteBrokenPod", "web-0", "delete failed"})
	allowed.Store(true)
	f.Scan()
	f.awaitDone(t, repair.ModeDelete, controller.ResultSuccess, 1)
}

// TestProtected: a disruption budget forbids an eviction, which is no failure, and is tried again.
func TestProtected(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	cluster.Put(broken("web-0"))
	cluster.Protect(true)
	f := startAt(t, cluster, options(repair.ModeEvict))
	f.awaitDone(t, repair.ModeEvict, controller.ResultSkip, 1)
	cluster.Protect(false)
	f.awaitDone(t, repair.ModeEvict, controller.ResultSuccess, 1)
	f.wantEvents(t, [3]string{"EvictBrokenPod", "web-0", "done"})
}

// TestSlowServer: the API server is slow about one pod; the others go on meanwhile.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	cluster.Put(broken("slow"), broken("web-0"))
	others := make(chan struct{})
	cluster.Answer(func(r *http.Request) int {
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/slow") {
			<-others
		}
		return 0
	})
	o := options(repair.ModeDelete)
	o.Timeout = patience
	f := startAt(t, cluster, o)
	f.awaitDone(t, repair.ModeDelete, controller.ResultSuccess, 1)
	close(others)
	f.awaitDone(t, repair.ModeDelete, controller.ResultSuccess, 2)
}

// TestServerWithoutAnswer waits for an answer only until the timeout.
func TestServerWithoutAnswer(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	cluster.Put(broken("web-0"))
	cluster.Answer(func(r *http.Request) int {
		if r.Method != http.MethodGet {
			io.Copy(io.Discard, r.Body) //nolint:errcheck // a server notices that a client hangs up only after the body
			<-r.Context().Done()
		}
		return 0
	})
	o := options(repair.ModeDelete)
	o.Timeout = 10 * time.Millisecond
	f := startAt(t, cluster, o)
	f.await(t, "told", func() bool { return len(f.told()) > 0 })
	if outcome := f.told()[0]; outcome.Result != controller.ResultFail || !errors.Is(outcome.Err, context.DeadlineExceeded) || outcome.EventErr == nil {
		t.Errorf("got %+v", outcome)
	}
}

// TestTwoControllers: two controllers run at the same time, and each pod is handled once and has
// one event.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	for i := range 20 {
		cluster.Put(broken(fmt.Sprintf("web-%02d", i)))
	}
	a, b := startAt(t, cluster, options(repair.ModeLabel)), startAt(t, cluster, options(repair.ModeLabel))
	for _, f := range []*fixture{a, b} {
		f.await(t, "all labelled", func() bool {
			for i := range 20 {
				if p, _ := cluster.Pod("shop", fmt.Sprintf("web-%02d", i)); p.Labels["cni.istio.io/uninitialized"] != "true" {
					return false
				}
			}
			return f.Status().Scanned
		})
	}
	patched := slices.DeleteFunc(writes(a), func(w string) bool { return w != "PATCH status 200" })
	if len(patched) != 20 {
		t.Errorf("%d pods were labelled", len(patched))
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limits          repair.Limits
		deleted, events int
		waiting         int
	}{
		"nothing is allowed":      {repair.Limits{}, 0, 3, 0},
		"two at once, one a week": {limits(2, 7*24*time.Hour), 2, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(repair.ModeDelete)
			o.Limits = test.limits
			f := start(t, o, broken("web-0"), broken("web-1"), broken("web-2"))
			f.awaitScan(t)
			f.await(t, "told", func() bool { return len(f.told()) == test.events })
			status := f.Status()
			if deleted := status.Done[controller.ModeResult{Mode: repair.ModeDelete, Result: controller.ResultSuccess}]; deleted != test.deleted ||
				status.Waiting != test.waiting || len(f.cluster.Events()) != test.events {
				t.Errorf("status %+v, events %v", status, f.cluster.Events())
			}
		})
	}
}

func limits(burst int, every time.Duration) repair.Limits {
	free := repair.Limit{Burst: 1}
	return repair.Limits{Writes: repair.Limit{Burst: burst, Every: every}, Disruptions: free, PerOwner: free, PerPod: free}
}

// TestReportsAreLimited: the reports come one after the other.
func TestReportsAreLimited(t *testing.T) {
	t.Parallel()
	o := options(repair.ModeReport)
	o.Reports = repair.Limit{Burst: 1, Every: 10 * time.Millisecond}
	f := start(t, o, broken("web-0"), broken("web-1"), broken("web-2"))
	f.awaitDone(t, repair.ModeReport, controller.ResultSuccess, 3)
	if events := f.cluster.Events(); len(events) != 3 {
		t.Errorf("got %+v", events)
	}
	f.Scan() // no news
	f.cluster.Put(broken("web-3"))
	f.awaitDone(t, repair.ModeReport, controller.ResultSuccess, 4)
	if events := f.cluster.Events(); len(events) != 4 {
		t.Errorf("got %+v", events)
	}
}

// TestUntold: the controller goes on if it cannot put events on pods.
func TestUntold(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	cluster.Put(broken("web-0"))
	cluster.Answer(func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/events") {
			return http.StatusForbidden
		}
		return 0
	})
	f := startAt(t, cluster, options(repair.ModeLabel))
	f.awaitDone(t, repair.ModeLabel, controller.ResultSuccess, 1)
	f.await(t, "told", func() bool { return len(f.told()) > 0 })
	if outcome := f.told()[0]; outcome.EventErr == nil || outcome.Err != nil || f.Status().EventsFailed != 1 {
		t.Errorf("got %+v", outcome)
	}
}

func TestSelection(t *testing.T) {
	t.Parallel()
	o := options(repair.ModeDelete)
	var err error
	if o.Select, err = controller.ParseSelection("team=a,tier!=free", "metadata.namespace=shop,metadata.name!=web-2"); err != nil {
		t.Fatal(err)
	}
	team := func(p *fakecluster.Pod) { p.Labels = map[string]string{"team": "a"} }
	f := start(t, o, pod("web-0", validated(126), team), broken("web-1"), pod("web-2", validated(126), team))
	f.awaitDone(t, repair.ModeDelete, controller.ResultSuccess, 1)
	f.awaitScan(t)
	f.wantEvents(t, [3]string{"DeleteBrokenPod", "web-0"})
	for _, bad := range [][2]string{{"a in", ""}, {"", "metadata.name"}, {"", "spec.image=x"}} {
		if _, err := controller.ParseSelection(bad[0], bad[1]); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestLargePods are not kept, but read from the API server.
func TestLargePods(t *testing.T) {
	t.Parallel()
	large := broken("web-0")
	large.Annotations = map[string]string{"note": strings.Repeat("x", nodepods.MaxPod)}
	f := start(t, options(repair.ModeLabel), large)
	f.awaitDone(t, repair.ModeLabel, controller.ResultSuccess, 1)
	for _, object := range f.informer.GetStore().List() {
		if o, isPod := object.(*nodepods.Object); !isPod || !o.TooLarge || len(o.Annotations) > 0 {
			t.Errorf("kept %+v", object)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	if _, err := controller.New(controller.Options{Resync: -1}); !errors.Is(err, controller.ErrOptions) ||
		!strings.Contains(err.Error(), "Cluster is needed") || !strings.Contains(err.Error(), "Criteria.Mesh is needed") ||
		!strings.Contains(err.Error(), "Criteria.Node is needed") {
		t.Errorf("got %v", err)
	}
	if _, err := controller.NewClient(&rest.Config{Host: "nothing://%"}); err == nil {
		t.Error("a client of nothing")
	}
	client, err := controller.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Informer("", controller.Selection{}); !errors.Is(err, controller.ErrOptions) {
		t.Errorf("got %v", err)
	}
	for _, action := range []repair.Action{
		{Do: repair.ModeDelete, Target: repair.Target{Namespace: "shop", Name: "web-0"}},
		{Do: repair.ModeRepair, Target: repair.Target{Namespace: "shop", Name: "web-0", UID: "1", ResourceVersion: "1"}},
	} {
		if err := client.Do(t.Context(), action); err == nil || !strings.Contains(err.Error(), "shop/web-0") {
			t.Errorf("%s: got %v", action.Do, err)
		}
	}
}
