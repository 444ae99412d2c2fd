// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// doing returns options that treat all broken pods in these ways, without limits.
func doing(do ...repair.Mode) controller.Options {
	free := repair.Limit{Burst: 1}
	return controller.Options{
		Policy: repair.Policy{Rules: []repair.Rule{{Do: do}}, Label: repair.IstioLabel()},
		Limits: repair.Limits{Writes: free, Disruptions: free, PerOwner: free, PerPod: free},
	}
}

func method(mode repair.Mode) string {
	return map[repair.Mode]string{
		repair.ModeLabel: http.MethodPatch, repair.ModeDelete: http.MethodDelete, repair.ModeEvict: http.MethodPost,
	}[mode]
}

func reason(mode repair.Mode) string {
	return map[repair.Mode]string{
		repair.ModeLabel: "LabelBrokenPod", repair.ModeDelete: "DeleteBrokenPod", repair.ModeEvict: "EvictBrokenPod",
	}[mode]
}

// TestRepairConflict changes one pod and recreates another between the diagnosis and the write.
// Repair changes only the pod that it diagnosed, in its newest version; the successor is left
// alone.
func TestRepairConflict(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	for _, mode := range []repair.Mode{repair.ModeLabel, repair.ModeDelete, repair.ModeEvict} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			conflict(t, mode)
		})
	}
}

func conflict(t *testing.T, mode repair.Mode) {
	t.Helper()
	p := onPaper(t)
	p.broken("changed", "recreated", "other")
	pods := p.Cluster.Client.CoreV1().Pods(p.Namespace)
	var changed, recreated atomic.Bool
	w := &wire{before: func(r *http.Request) {
		var err error
		switch ctx := r.Context(); {
		case r.Method != method(mode):
		case strings.Contains(r.URL.Path, "/changed") && changed.CompareAndSwap(false, true):
			_, err = pods.Patch(ctx, "changed", types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"meanwhile"}}}`), metav1.PatchOptions{})
		case strings.Contains(r.URL.Path, "/recreated") && recreated.CompareAndSwap(false, true):
			if err = pods.Delete(ctx, "recreated", metav1.DeleteOptions{}); err == nil {
				err = p.pod(ctx, "recreated", 0, p.account)
			}
		}
		if err != nil {
			t.Error(err)
		}
	}}
	k := p.keep(w, doing(mode), "")
	done := func(result controller.Result) int {
		return k.Status().Done[controller.ModeResult{Mode: mode, Result: result}]
	}
	p.Await("both others are dealt with", func(context.Context) (bool, error) {
		return done(controller.ResultSuccess) == 2 && k.Status().Pods[repair.Healthy] == 1, nil
	})
	k.end()
	want := map[string]string{"recreated": ""}
	if mode == repair.ModeLabel {
		want["changed"], want["other"] = "true", "true"
	}
	if left := p.left(); fmt.Sprint(left) != fmt.Sprint(want) {
		t.Errorf("there is %v, and should be %v", left, want)
	}
	refused := slices.DeleteFunc(w.sent(method(mode)), func(x write) bool { return x.status < http.StatusBadRequest })
	if len(refused) < 2 || slices.ContainsFunc(refused, func(x write) bool { return x.status != http.StatusConflict }) {
		t.Errorf("refused was %v", refused)
	}
	if done(controller.ResultSkip) < 2 || done(controller.ResultFail) != 0 {
		t.Errorf("status %+v", k.Status())
	}
	if recreated, changed := p.eventsOf("recreated"), p.eventsOf("changed"); len(recreated) != 0 || len(changed[reason(mode)]) != 1 {
		t.Errorf("told %v of the pod that is made anew, and %v of the one that has changed", recreated, changed)
	}
}

// TestRepairForbidden runs as an account that may label but not delete pods. The pods to delete get
// an event with the reason and a few more tries, and the others are repaired. Once the account may
// delete, the rest is done.
func TestRepairForbidden(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	p := onPaper(t)
	user, allow := p.user()
	p.broken("kept")
	p.Do("make a pod without an owner", func(ctx context.Context) error { return p.pod(ctx, "labelled", 126) })
	o := doing(repair.ModeDelete)
	o.Policy.Rules = append([]repair.Rule{{OwnerKinds: []string{repair.NoOwner}, Do: []repair.Mode{repair.ModeLabel}}}, o.Policy.Rules...)
	w := &wire{}
	k := p.keep(w, o, user)
	done := func(mode repair.Mode, result controller.Result) int {
		return k.Status().Done[controller.ModeResult{Mode: mode, Result: result}]
	}
	p.Await("a refusal, and what is allowed", func(context.Context) (bool, error) {
		return done(repair.ModeDelete, controller.ResultFail) > 0 && done(repair.ModeLabel, controller.ResultSuccess) == 1 &&
			len(p.eventsOf("kept")["DeleteBrokenPod"]) == 1, nil
	})
	if told := p.eventsOf("kept")["DeleteBrokenPod"][0]; !strings.Contains(told, "delete failed: ") || !strings.Contains(told, `cannot delete resource "pods"`) {
		t.Errorf("told %q", told)
	}
	k.mu.Lock()
	index := slices.IndexFunc(k.outcomes, func(o controller.Outcome) bool { return o.Finding.Of.Name == "kept" })
	if !apierrors.IsForbidden(k.outcomes[index].Err) {
		t.Errorf("the outcome is %+v", k.outcomes[index])
	}
	k.mu.Unlock()
	if left := p.left(); fmt.Sprint(left) != fmt.Sprint(map[string]string{"kept": "", "labelled": "true"}) {
		t.Errorf("there is %v", left)
	}
	allow()
	k.Scan()
	p.Await("what is allowed now", func(context.Context) (bool, error) {
		return done(repair.ModeDelete, controller.ResultSuccess) == 1, nil
	})
	if left := p.left(); len(left) != 1 {
		t.Errorf("there is %v", left)
	}
}

// user creates an account with a repair controller's rights except to delete pods, and returns a
// function that grants this right.
func (p *paper) user() (name string, allow func()) {
	p.t.Helper()
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}},
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}, Rules: rules}
	rbac := p.Cluster.Client.RbacV1()
	name = "system:serviceaccount:" + p.Namespace + ":default"
	p.Do("make a role", func(ctx context.Context) error {
		if _, err := rbac.ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: p.Namespace, Name: "default"}},
		}, metav1.CreateOptions{})
		return err
	})
	p.Cleanup("delete the role", func(ctx context.Context) error {
		return errors.Join(rbac.ClusterRoleBindings().Delete(ctx, role.Name, metav1.DeleteOptions{}), rbac.ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{}))
	})
	return name, func() {
		p.t.Helper()
		role.Rules[0].Verbs = append(role.Rules[0].Verbs, "delete")
		p.Do("allow to delete pods", func(ctx context.Context) error {
			_, err := rbac.ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
			return err
		})
	}
}

// clock stands still unless the test advances it.
type clock struct{ passed atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(1<<30, c.passed.Load()) }

// TestRepairSlowServer delays requests and answers, the answers for longer than the controller
// waits. Limits hold, and no pod is written to twice.
func TestRepairSlowServer(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	for name, test := range map[string]struct {
		wire    *wire
		timeout time.Duration
		result  controller.Result
	}{
		"late": {&wire{ahead: 200 * time.Millisecond, back: 200 * time.Millisecond}, 0, controller.ResultSuccess},
		// The timeout is long enough for each request to begin.
		"too late": {&wire{lost: true}, 2 * time.Second, controller.ResultFail},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onPaper(t)
			p.broken("a", "b", "c", "d", "e")
			var clock clock
			o := doing(repair.ModeLabel)
			o.Limits.Writes, o.Timeout, o.Now = repair.Limit{Burst: 2, Every: 100 * time.Millisecond}, test.timeout, clock.now
			k := p.keep(test.wire, o, "")
			for labelled := 2; labelled <= 5; labelled++ {
				p.Await(fmt.Sprint(labelled, " labelled"), func(context.Context) (bool, error) {
					status := k.Status()
					return status.Done[controller.ModeResult{Mode: repair.ModeLabel, Result: test.result}] == labelled && status.Waiting == 5-labelled &&
						// Without the answer to a write, the controller may have counted another
						// pod against the budget.
						k.labelled() == labelled, nil
				})
				if got := len(p.labelled()); got != labelled {
					t.Errorf("%d pods are labelled, and %d may be", got, labelled)
				}
				clock.passed.Add(int64(o.Limits.Writes.Every))
			}
			before := k.looks.Load()
			p.Await("another look at each pod", func(context.Context) (bool, error) {
				k.Scan()
				return k.looks.Load() > before+10, nil
			})
			k.end()
			patches := test.wire.sent(http.MethodPatch)
			if len(patches) != 5 || slices.ContainsFunc(patches, func(x write) bool { return x.status != http.StatusOK }) {
				t.Errorf("written was %v", patches)
			}
		})
	}
}

// labelled returns the number of marked pods that the controller knows.
func (k *keeper) labelled() (pods int) {
	for _, object := range k.known.List() {
		if o, is := object.(*nodepods.Object); is && o.Labels[repair.IstioLabel().Key] == "true" {
			pods++
		}
	}
	return pods
}

// labelled returns the names of the pods that repair has marked.
func (p *paper) labelled() []string {
	p.t.Helper()
	var names []string
	for name, label := range p.left() {
		if label == "true" {
			names = append(names, name)
		}
	}
	return names
}

// TestRepairEnds stops a controller while the API server delays its answer. The controller ends at
// once, and has changed nothing.
func TestRepairEnds(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	p := onPaper(t)
	p.broken("a")
	sent := make(chan struct{})
	o := doing(repair.ModeDelete)
	o.Timeout = time.Hour
	k := p.keep(&wire{before: func(r *http.Request) {
		if r.Method == http.MethodDelete {
			close(sent)
			<-r.Context().Done()
		}
	}}, o, "")
	p.Do("wait for the request", func(ctx context.Context) error { return within(ctx, sent) })
	ended := make(chan struct{})
	go func() {
		k.end()
		close(ended)
	}()
	p.Do("end", func(ctx context.Context) error { return within(ctx, ended) })
	if left := p.left(); len(left) != 1 {
		t.Errorf("there is %v", left)
	}
}

// within waits until done is closed.
func within(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestRepairTwice runs two controllers for the same pods, which treat each pod at the same moment.
// Each pod is repaired once and gets one event.
func TestRepairTwice(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	for _, mode := range []repair.Mode{repair.ModeLabel, repair.ModeDelete, repair.ModeEvict} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			twice(t, mode)
		})
	}
}

func twice(t *testing.T, mode repair.Mode) {
	t.Helper()
	p := onPaper(t)
	// These are as many pods as a controller treats at once, else they would wait for each other.
	names := []string{"a", "b", "c", "d"}
	p.broken(names...)
	meet := meetings(mode)
	wires := []*wire{{before: meet}, {before: meet}}
	keepers := []*keeper{p.keep(wires[0], doing(mode), ""), p.keep(wires[1], doing(mode), "")}
	done := func(result controller.Result) (times int) {
		for _, k := range keepers {
			times += k.Status().Done[controller.ModeResult{Mode: mode, Result: result}]
		}
		return times
	}
	p.Await("all dealt with by one, and left by the other", func(context.Context) (bool, error) {
		return done(controller.ResultSuccess) == len(names) && done(controller.ResultSkip) >= len(names), nil
	})
	var written []write
	for i, k := range keepers {
		k.end()
		written = append(written, slices.DeleteFunc(wires[i].sent(method(mode)), func(x write) bool { return x.status >= http.StatusBadRequest })...)
	}
	if len(written) != len(names) || done(controller.ResultSuccess) != len(names) || done(controller.ResultFail) != 0 {
		t.Errorf("written was %v, and done %d", written, done(controller.ResultSuccess))
	}
	if left := len(p.left()) - len(p.labelled()); left != 0 {
		t.Errorf("%d pods are not dealt with", left)
	}
	for _, name := range names {
		// A pod that is being evicted may be reported as well.
		if told := p.eventsOf(name); len(told[reason(mode)]) != 1 {
			t.Errorf("of %s is told %v", name, told)
		}
	}
}

// meetings makes the first two requests for a pod wait for each other.
func meetings(mode repair.Mode) func(*http.Request) {
	var mu sync.Mutex
	arrived := map[string]int{}
	both := map[string]chan struct{}{}
	return func(r *http.Request) {
		if r.Method != method(mode) || strings.HasSuffix(r.URL.Path, "/events") {
			return
		}
		mu.Lock()
		if arrived[r.URL.Path]++; arrived[r.URL.Path] == 1 {
			both[r.URL.Path] = make(chan struct{})
		}
		if arrived[r.URL.Path] == 2 {
			close(both[r.URL.Path])
		}
		met := both[r.URL.Path]
		mu.Unlock()
		_ = within(r.Context(), met)
	}
}
