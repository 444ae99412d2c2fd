// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Deploy creates a Deployment with one pod, and waits until the pod is ready.
func (s *Scenario) Deploy(w Workload) *corev1.Pod {
	s.t.Helper()
	s.Do("make Deployment "+w.Name, func(ctx context.Context) error {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: w.Name}, Spec: appsv1.DeploymentSpec{
			Selector: selector(w), Template: w.template(),
		}}
		_, err := s.client().AppsV1().Deployments(s.in(w)).Create(ctx, deployment, metav1.CreateOptions{})
		return err
	})
	return s.AwaitPod(w)
}

// StatefulSet creates a StatefulSet with one pod, and waits until the pod is ready.
func (s *Scenario) StatefulSet(w Workload) *corev1.Pod {
	s.t.Helper()
	s.Do("make StatefulSet "+w.Name, func(ctx context.Context) error {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: w.Name}, Spec: appsv1.StatefulSetSpec{
			ServiceName: w.Name, Selector: selector(w), Template: w.template(),
		}}
		_, err := s.client().AppsV1().StatefulSets(s.in(w)).Create(ctx, set, metav1.CreateOptions{})
		return err
	})
	return s.AwaitPod(w)
}

// Job creates a Job, waits until its pod has succeeded, and returns its application's output.
func (s *Scenario) Job(w Workload) string {
	s.t.Helper()
	template := w.template()
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	s.Do("make Job "+w.Name, func(ctx context.Context) error {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: w.Name}, Spec: batchv1.JobSpec{Template: template, BackoffLimit: new(int32)}}
		_, err := s.client().BatchV1().Jobs(s.in(w)).Create(ctx, job, metav1.CreateOptions{})
		return err
	})
	s.Await("Job "+w.Name, func(ctx context.Context) (bool, error) {
		job, err := s.client().BatchV1().Jobs(s.in(w)).Get(ctx, w.Name, metav1.GetOptions{})
		if err == nil && job.Status.Failed > 0 {
			err = fmt.Errorf("it has failed: %+v", job.Status)
		}
		return err == nil && job.Status.Succeeded > 0, err
	})
	pods := s.pods(w)
	return s.Logs(&pods[0])
}

// Start creates a pod, and does not wait for it.
func (s *Scenario) Start(w Workload) {
	s.t.Helper()
	s.Do("make pod "+w.Name, func(ctx context.Context) error {
		_, err := s.client().CoreV1().Pods(s.in(w)).Create(ctx, w.Pod(), metav1.CreateOptions{})
		return err
	})
}

// Pod creates a pod, and waits until it is ready.
func (s *Scenario) Pod(w Workload) *corev1.Pod {
	s.t.Helper()
	s.Start(w)
	return s.AwaitPod(w)
}

// AwaitPod waits until the workload has exactly one pod and it is ready, and returns it.
func (s *Scenario) AwaitPod(w Workload) *corev1.Pod {
	s.t.Helper()
	var found *corev1.Pod
	s.Await("a pod of "+w.Name, func(context.Context) (bool, error) {
		pods := s.pods(w)
		if len(pods) == 1 && pods[0].DeletionTimestamp == nil && Ready(&pods[0]) {
			found = &pods[0]
		}
		return found != nil, nil
	})
	return found
}

// Delete deletes a pod, and waits until it is gone.
func (s *Scenario) Delete(pod *corev1.Pod) {
	s.t.Helper()
	s.Do("delete pod "+pod.Name, func(ctx context.Context) error {
		return s.client().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
	})
	s.Await("the end of pod "+pod.Name, func(ctx context.Context) (bool, error) {
		now, err := s.client().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID, nil
	})
}

// KillSandbox kills the process that holds a pod's namespaces, and waits until the kubelet has
// created new ones, by another ADD, and the pod is ready again.
func (s *Scenario) KillSandbox(pod *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	node, ids := s.NodeOf(pod), ""
	s.Do("kill the sandbox of "+pod.Name, func(ctx context.Context) (err error) {
		filter := fmt.Sprintf("labels.\"io.kubernetes.pod.uid\"==%q,labels.\"io.cri-containerd.kind\"==sandbox", pod.UID)
		if ids, err = node.Run(ctx, "ctr", "--namespace", "k8s.io", "containers", "ls", "--quiet", filter); err != nil {
			return err
		}
		_, err = node.Run(ctx, "ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", strings.TrimSpace(ids))
		return err
	})
	var now *corev1.Pod
	s.Await("another sandbox of "+pod.Name, func(ctx context.Context) (done bool, err error) {
		now, err = s.client().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && Ready(now) && now.Status.PodIP != pod.Status.PodIP, err
	})
	return now
}

// Ready reports whether a pod's containers run and are ready.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (s *Scenario) pods(w Workload) []corev1.Pod {
	s.t.Helper()
	var pods *corev1.PodList
	s.Do("list pods", func(ctx context.Context) (err error) {
		pods, err = s.client().CoreV1().Pods(s.in(w)).List(ctx, metav1.ListOptions{LabelSelector: "app=" + w.Name})
		return err
	})
	return pods.Items
}

func (s *Scenario) in(w Workload) string { return cmp.Or(w.Namespace, s.Namespace) }

func selector(w Workload) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.Name}}
}
