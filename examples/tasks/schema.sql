create table if not exists people (
    id bigint generated always as identity primary key,
    name text not null unique,
    password text not null
);

create table if not exists tasks (
    id bigint generated always as identity primary key,
    text text not null,
    done boolean not null default false,
    person bigint not null references people,
    file text
);
