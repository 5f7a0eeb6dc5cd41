// Package helm_test renders the chart and checks what Kubernetes would receive.
package helm_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

var services = []string{"executor", "gateway", "state", "stream"}

// object is any of the chart's objects, with the fields that the tests look at. Other fields are ignored.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Replicas       *int
		MaxUnavailable *int
		Strategy       struct {
			RollingUpdate struct{ MaxUnavailable, MaxSurge *int }
		}
		Selector            any
		Ports               []struct{ Port, TargetPort int }
		ScaleTargetRef      struct{ Name string }
		PodMetricsEndpoints []struct{ Port string }
		Template            struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
	}
}

type pod struct {
	TerminationGracePeriodSeconds int
	SecurityContext               struct{ RunAsNonRoot bool }
	Containers                    []container
	Volumes                       []struct {
		Name   string
		Secret struct{ SecretName string }
	}
}

type container struct {
	Name, Image    string
	Env            []variable
	ReadinessProbe probe
	LivenessProbe  probe
	Lifecycle      struct {
		PreStop struct{ Sleep struct{ Seconds int } }
	}
	Resources       struct{ Requests map[string]string }
	Ports           []struct{ Name string }
	SecurityContext struct {
		ReadOnlyRootFilesystem   bool
		AllowPrivilegeEscalation *bool
		Capabilities             struct{ Drop []string }
	}
}

type variable struct {
	Name, Value string
	ValueFrom   struct{ SecretKeyRef struct{ Name, Key string } }
}

type probe struct {
	HTTPGet struct{ Path string }
	GRPC    struct{ Port int }
}

var needed = map[string]any{
	"image":           map[string]any{"registry": "registry.example.com/holdfast"},
	"secretName":      "holdfast",
	"agentsConfigMap": "agents",
}

// render renders the chart with these values above the needed ones.
func render(t *testing.T, values map[string]any) ([]object, error) {
	t.Helper()
	chart, err := loader.Load("holdfast")
	if err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(needed)
	maps.Copy(all, values)
	given, err := chartutil.ToRenderValues(chart, all, chartutil.ReleaseOptions{Name: "prod", Namespace: "agents"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(chart, given)
	if err != nil {
		return nil, err
	}
	var objects []object
	for name, text := range files {
		for _, one := range strings.Split(text, "\n---\n") {
			if !strings.HasSuffix(name, ".yaml") || strings.TrimSpace(one) == "" {
				continue
			}
			var o object
			if err := yaml.Unmarshal([]byte(one), &o); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, one)
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}

func mustRender(t *testing.T, values map[string]any) []object {
	t.Helper()
	objects, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// names returns the sorted names of the objects of a kind.
func names(objects []object, kind string) []string {
	var all []string
	for _, o := range objects {
		if o.Kind == kind {
			all = append(all, o.Metadata.Name)
		}
	}
	slices.Sort(all)
	return all
}

func TestEachServiceHasADeploymentAServiceAndADisruptionBudget(t *testing.T) {
	t.Parallel()
	objects := mustRender(t, nil)
	var want []string
	for _, s := range services {
		want = append(want, "prod-"+s)
	}
	for _, kind := range []string{"Deployment", "Service", "PodDisruptionBudget"} {
		if got := names(objects, kind); !slices.Equal(got, want) {
			t.Errorf("the %ss are %q, want %q", kind, got, want)
		}
	}
	if got, want := len(objects), 3*len(services); got != want {
		t.Errorf("the chart has %d objects, want %d", got, want)
	}
}

func TestAnUpdateStartsAPodBeforeItStopsAnother(t *testing.T) {
	t.Parallel()
	for _, o := range mustRender(t, nil) {
		if o.Kind != "Deployment" {
			continue
		}
		update := o.Spec.Strategy.RollingUpdate
		if update.MaxUnavailable == nil || *update.MaxUnavailable != 0 || update.MaxSurge == nil || *update.MaxSurge < 1 {
			t.Errorf("%s: the update is %+v, want maxUnavailable 0 and a surge", o.Metadata.Name, update)
		}
		// The delay of 5 s, the grace of 30 s and the 10 s within which a cut service ends.
		if got := o.Spec.Template.Spec.TerminationGracePeriodSeconds; got < 45 {
			t.Errorf("%s: is killed after %d s, want at least 45", o.Metadata.Name, got)
		}
		if c := o.Spec.Template.Spec.Containers[0]; c.Lifecycle.PreStop.Sleep.Seconds != 5 {
			t.Errorf("%s: stops %d s after the announcement, want 5", o.Metadata.Name, c.Lifecycle.PreStop.Sleep.Seconds)
		}
	}
}

func TestEachContainerIsProbedAndHasNoRights(t *testing.T) {
	t.Parallel()
	for _, o := range mustRender(t, nil) {
		if o.Kind != "Deployment" {
			continue
		}
		c, name := o.Spec.Template.Spec.Containers[0], o.Metadata.Name
		if want := "registry.example.com/holdfast/" + c.Name + ":0.1.0"; c.Image != want {
			t.Errorf("%s: the image is %q, want %q", name, c.Image, want)
		}
		if c.Name == "gateway" {
			if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
				t.Errorf("%s: the probes are %+v and %+v", name, c.LivenessProbe, c.ReadinessProbe)
			}
		} else if c.LivenessProbe.GRPC.Port == 0 || c.ReadinessProbe.GRPC.Port == 0 {
			t.Errorf("%s: the probes are %+v and %+v, want gRPC", name, c.LivenessProbe, c.ReadinessProbe)
		}
		s := c.SecurityContext
		if !o.Spec.Template.Spec.SecurityContext.RunAsNonRoot || !s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil ||
			*s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
			t.Errorf("%s: has the rights %+v", name, s)
		}
		if c.Resources.Requests["cpu"] == "" || c.Resources.Requests["memory"] == "" {
			t.Errorf("%s: requests %v, want cpu and memory", name, c.Resources.Requests)
		}
	}
}

func TestEveryVariableIsDocumentedAndSecretsAreReferences(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	secret := regexp.MustCompile(`_(TOKEN|SECRET|(POSTGRES|NATS)_URL)$`)
	references := 0
	for _, o := range mustRender(t, map[string]any{"otlpEndpoint": "http://collector:4317"}) {
		if o.Kind != "Deployment" {
			continue
		}
		for _, v := range o.Spec.Template.Spec.Containers[0].Env {
			if !strings.Contains(string(text), "| `"+v.Name+"` |") {
				t.Errorf("%s: %s is no variable of Holdfast", o.Metadata.Name, v.Name)
			}
			if !secret.MatchString(v.Name) {
				continue
			}
			references++
			if ref := v.ValueFrom.SecretKeyRef; v.Value != "" || ref.Name != "holdfast" || ref.Key == "" {
				t.Errorf("%s: %s is %q and refers to %+v, want a reference to the secret", o.Metadata.Name, v.Name, v.Value, ref)
			}
		}
	}
	if want := 6; references != want {
		t.Errorf("%d variables refer to the secret, want %d", references, want)
	}
}

func TestAServiceMayHaveATagOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, o := range mustRender(t, map[string]any{"gateway": map[string]any{"tag": "0.0.9"}}) {
		if o.Kind != "Deployment" {
			continue
		}
		c, tag := o.Spec.Template.Spec.Containers[0], "0.1.0"
		if c.Name == "gateway" {
			tag = "0.0.9"
		}
		if want := "registry.example.com/holdfast/" + c.Name + ":" + tag; c.Image != want {
			t.Errorf("%s: the image is %q, want %q", c.Name, c.Image, want)
		}
	}
}

func TestAutoscalingReplacesTheNumberOfReplicas(t *testing.T) {
	t.Parallel()
	objects := mustRender(t, map[string]any{"executor": map[string]any{"autoscaling": map[string]any{"enabled": true}}})
	if got, want := names(objects, "HorizontalPodAutoscaler"), []string{"prod-executor"}; !slices.Equal(got, want) {
		t.Errorf("the autoscalers are %q, want %q", got, want)
	}
	for _, o := range objects {
		if scaled := o.Metadata.Name == "prod-executor"; o.Kind == "Deployment" && scaled != (o.Spec.Replicas == nil) {
			t.Errorf("%s: replicas is set: %t, autoscaled: %t", o.Metadata.Name, o.Spec.Replicas != nil, scaled)
		}
	}
}

func TestAMissingValueIsNamed(t *testing.T) {
	t.Parallel()
	for value, without := range map[string]map[string]any{
		"image.registry":  {"image": map[string]any{"registry": ""}},
		"secretName":      {"secretName": ""},
		"agentsConfigMap": {"agentsConfigMap": ""},
	} {
		if _, err := render(t, without); err == nil || !strings.Contains(err.Error(), value+":") {
			t.Errorf("without %s: the error is %v, want one that names it", value, err)
		}
	}
}

func TestAPodMonitorReadsTheMetricsPortOfEachPod(t *testing.T) {
	t.Parallel()
	objects := mustRender(t, map[string]any{"metrics": map[string]any{"enabled": true, "podMonitor": true}})
	if got, want := names(objects, "PodMonitor"), []string{"prod-holdfast"}; !slices.Equal(got, want) {
		t.Errorf("the pod monitors are %q, want %q", got, want)
	}
	for _, o := range objects {
		if o.Kind == "PodMonitor" && (len(o.Spec.PodMetricsEndpoints) != 1 || o.Spec.PodMetricsEndpoints[0].Port != "metrics") {
			t.Errorf("the pod monitor reads %+v", o.Spec.PodMetricsEndpoints)
		}
		if o.Kind != "Deployment" {
			continue
		}
		c := o.Spec.Template.Spec.Containers[0]
		if !slices.Contains(c.Env, variable{Name: "HOLDFAST_METRICS_LISTEN", Value: "0.0.0.0:9464"}) || len(c.Ports) != 2 || c.Ports[1].Name != "metrics" {
			t.Errorf("%s: serves no metrics: %+v", o.Metadata.Name, c)
		}
	}
	if _, err := render(t, map[string]any{"metrics": map[string]any{"enabled": false, "podMonitor": true}}); err == nil || !strings.Contains(err.Error(), "metrics.enabled") {
		t.Errorf("a pod monitor without metrics: got %v", err)
	}
}

func TestHelmFindsNothingToCorrect(t *testing.T) {
	t.Parallel()
	for _, values := range []map[string]any{needed, {"image": needed["image"], "secretName": "holdfast", "agentsConfigMap": "agents", "metrics": map[string]any{"enabled": true, "podMonitor": true}}} {
		for _, m := range lint.AllWithKubeVersion("holdfast", values, "agents", nil).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", m.Path, m.Err)
			}
		}
	}
}
