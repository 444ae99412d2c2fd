// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

// records are the observations of one pod from a node's records, without a look at its namespace.
type records struct {
	mu   sync.Mutex
	seen repair.Observation
	err  error
}

func (r *records) set(seen repair.Observation, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen, r.err = seen, err
}

func (r *records) Observe(context.Context, repair.Pod) (repair.Observation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen, r.err
}

func (*records) Repair(context.Context, repair.Pod, *interception.Plan) error {
	return errors.New("nothing is repaired by records")
}

// moving is an informer of pods that come and change.
type moving struct {
	standing
	handler cache.ResourceEventHandler
}

func (m *moving) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	m.handler = h
	return m.standing.AddEventHandler(h)
}

// teller is an API server that accepts events.
type teller struct {
	unwilling
	start time.Time

	mu   sync.Mutex
	told []heard
}

// heard is an event's reason, and when it arrived.
type heard struct {
	reason string
	after  time.Duration
}

func (l *teller) CreateEvent(_ context.Context, e controller.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, heard{e.Reason, time.Since(l.start)})
	return nil
}

// lone returns a running pod in the mesh without a validator.
func lone(t *testing.T, version string) *nodepods.Object {
	t.Helper()
	var o nodepods.Object
	if err := json.Unmarshal([]byte(`{
		"metadata": {
			"namespace": "shop", "name": "web-0", "uid": "1", "resourceVersion": "`+version+`", "annotations": {"sidecar.istio.io/status": "{}"}
		},
		"spec": {"nodeName": "a", "containers": [{"name": "istio-proxy", "args": ["proxy", "sidecar"]}]},
		"status": {"phase": "Running", "podIPs": [{"ip": "192.0.2.1"}]}
	}`), &o); err != nil {
		t.Fatal(err)
	}
	return &o
}

// lab has one pod, its record, and its events.
type lab struct {
	t        *testing.T
	version  int
	informer *moving
	records  *records
	teller   *teller

	mu       sync.Mutex
	outcomes []controller.Outcome
}

func (l *lab) heard(o controller.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes = append(l.outcomes, o)
}

func newLab(t *testing.T) *lab {
	t.Helper()
	return &lab{
		t: t, informer: &moving{standing: standing{store: cache.NewStore(cache.MetaNamespaceKeyFunc)}},
		records: &records{}, teller: &teller{start: time.Now()},
	}
}

// start creates or changes the pod.
func (l *lab) start() {
	l.t.Helper()
	l.version++
	pod := lone(l.t, strconv.Itoa(l.version))
	old, found, err := l.informer.store.Get(pod)
	if err == nil {
		err = l.informer.store.Update(pod)
	}
	switch {
	case err != nil:
		l.t.Fatal(err)
	case l.informer.handler == nil: // the controller does not run yet
	case found:
		l.informer.handler.OnUpdate(old, pod)
	default:
		l.informer.handler.OnAdd(pod, false)
	}
}

func (l *lab) recorded() {
	l.records.set(repair.Observation{UID: "1", Record: &repair.Record{UID: "1", Plan: &interception.Plan{Owner: "my-mesh"}}}, nil)
}

func (l *lab) unrecorded() { l.records.set(repair.Observation{UID: "1", Unrecorded: true}, nil) }

func (l *lab) unreadable() {
	l.records.set(repair.Observation{UID: "1"}, errors.New("a record cannot be read"))
}

// later lets a minute of synctest's time pass.
func (*lab) later() { <-time.After(time.Minute) }

// run runs a controller for a while, in which something happens to the pod.
func (l *lab) run(happens []func(*lab)) map[repair.Verdict]int {
	l.t.Helper()
	o := options(repair.ModeRepair)
	o.Cluster, o.Informer, o.Namespaces = l.teller, l.informer, l.records
	o.OnOutcome = l.heard
	c, err := controller.New(o)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, end := context.WithTimeout(l.t.Context(), 10*time.Minute)
	defer end()
	var group sync.WaitGroup
	group.Go(func() {
		if err := c.Run(ctx); err != nil {
			l.t.Error(err)
		}
	})
	for _, do := range happens {
		synctest.Wait()
		do(l)
	}
	group.Wait()
	return c.Status().Pods
}

// TestUnrecorded: a pod without a record is reported, at once if it is new, and after a while if
// its record may just have been removed with its network.
func TestUnrecorded(t *testing.T) {
	t.Parallel()
	type steps = []func(*lab)
	atOnce, suspect := []heard{{"SuspectPod", 0}}, map[repair.Verdict]int{repair.Suspect: 1}
	healthy := map[repair.Verdict]int{repair.Healthy: 1}
	for name, test := range map[string]struct {
		before, after steps // the controller's start
		want          []heard
		pods          map[repair.Verdict]int
	}{
		"new":                                   {nil, steps{(*lab).unrecorded, (*lab).start}, atOnce, suspect},
		"new, and changes":                      {nil, steps{(*lab).unrecorded, (*lab).start, (*lab).later, (*lab).start}, atOnce, suspect},
		"recorded":                              {nil, steps{(*lab).recorded, (*lab).start}, nil, healthy},
		"there at the start":                    {steps{(*lab).unrecorded, (*lab).start}, nil, []heard{{"SuspectPod", 30 * time.Second}}, suspect},
		"there at the start, and recorded soon": {steps{(*lab).unrecorded, (*lab).start}, steps{(*lab).recorded}, nil, healthy},
		"loses its record": {
			nil,
			steps{(*lab).recorded, (*lab).start, (*lab).later, (*lab).unrecorded, (*lab).start},
			[]heard{{"SuspectPod", 90 * time.Second}},
			suspect,
		},
		"has a new sandbox": {
			nil, steps{(*lab).recorded, (*lab).start, (*lab).later, (*lab).unrecorded, (*lab).start, (*lab).recorded, (*lab).start}, nil, healthy,
		},
		"nobody can tell": { // the last of five attempts comes after 1+2+4+8 seconds
			nil, steps{(*lab).unreadable, (*lab).start}, []heard{{"UnknownPod", 15 * time.Second}}, map[repair.Verdict]int{repair.Unknown: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				for _, do := range test.before {
					do(l)
				}
				if got := l.run(test.after); !maps.Equal(got, test.pods) {
					t.Errorf("counted %v, want %v", got, test.pods)
				}
				if !slices.Equal(l.teller.told, test.want) {
					t.Errorf("told %v, want %v", l.teller.told, test.want)
				}
			})
		})
	}
}

// TestRecordedAndUnseen: that a pod's namespace cannot be looked at is reported once, though its
// record shows that the pod is captured.
func TestRecordedAndUnseen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		blind := func(l *lab) {
			l.recorded()
			l.records.set(l.records.seen, errors.New("no namespace has its address"))
		}
		pods := l.run([]func(*lab){blind, (*lab).start, (*lab).later, (*lab).start})
		if pods[repair.Healthy] != 1 || len(l.teller.told) != 0 {
			t.Errorf("counted %v, told %v", pods, l.teller.told)
		}
		if len(l.outcomes) != 1 || l.outcomes[0].Unseen == nil {
			t.Errorf("outcomes %+v", l.outcomes)
		}
	})
}
